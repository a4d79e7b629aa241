package agui

import (
	"bytes"
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// signature is how the bytes of a MIME type begin.
type signature struct {
	// at is where magic stands.
	at    int
	magic string
	mime  string
}

// signatures of the media types that models and browsers show. The standard
// library's sniffer lives in net/http, whose megabytes every tool would carry.
var signatures = []signature{
	{0, "\x89PNG\r\n\x1a\n", "image/png"},
	{0, "\xff\xd8\xff", "image/jpeg"},
	{0, "GIF87a", "image/gif"},
	{0, "GIF89a", "image/gif"},
	{8, "WEBP", "image/webp"},
	{4, "ftypavif", "image/avif"},
	{4, "ftypheic", "image/heic"},
	{0, "BM", "image/bmp"},
	{0, "II*\x00", "image/tiff"},
	{0, "MM\x00*", "image/tiff"},
	{8, "WAVE", "audio/wav"},
	{8, "AVI ", "video/x-msvideo"},
	{0, "ID3", "audio/mpeg"},
	{0, "\xff\xfb", "audio/mpeg"},
	{0, "fLaC", "audio/flac"},
	{0, "OggS", "audio/ogg"},
	{4, "ftypM4A", "audio/mp4"},
	{4, "ftyp", "video/mp4"},
	{0, "\x1aE\xdf\xa3", "video/webm"},
	{0, "%PDF-", "application/pdf"},
	{0, "PK\x03\x04", "application/zip"},
	{0, "\x1f\x8b", "application/gzip"},
}

// sniff names the MIME type of data, or application/octet-stream.
func sniff(data []byte) string {
	for _, s := range signatures {
		if len(data) >= s.at && bytes.HasPrefix(data[s.at:], []byte(s.magic)) {
			return s.mime
		}
	}
	if utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 {
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// MediaOf makes the media part that holds data: an image, audio, video or
// document by its first bytes, never without a MIME type.
func MediaOf(data []byte) Part {
	mime := sniff(data)
	kind := PartDocument
	for _, media := range [...]string{PartImage, PartAudio, PartVideo} {
		if strings.HasPrefix(mime, media+"/") {
			kind = media
		}
	}
	return Media(kind, Source{Type: SourceData, Value: base64.StdEncoding.EncodeToString(data), MimeType: mime})
}
