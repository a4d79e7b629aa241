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

// MimeTypeOf names the MIME type of data, or application/octet-stream.
func MimeTypeOf(data []byte) string {
	var s Sniffer
	_, _ = s.Write(data)
	return s.MimeType()
}

// Sniffer names the MIME type of the bytes that are written to it, and holds a
// few of them. The zero value is ready.
type Sniffer struct {
	head   []byte
	rune   []byte // the beginning of a rune whose end has not come
	binary bool
}

// sniffed is more than the end of any signature.
const sniffed = 16

// Write implements [io.Writer]. It never fails.
func (s *Sniffer) Write(p []byte) (int, error) {
	s.head = append(s.head, p[:min(len(p), sniffed-len(s.head))]...)
	if s.binary {
		return len(p), nil
	}
	rest := p
	for len(s.rune) > 0 && len(rest) > 0 && !utf8.FullRune(s.rune) {
		s.rune, rest = append(s.rune, rest[0]), rest[1:]
	}
	if utf8.FullRune(s.rune) {
		s.binary = !utf8.Valid(s.rune)
		s.rune = s.rune[:0]
	}
	end := len(rest)
	for i := 1; i < utf8.UTFMax && i <= len(rest); i++ {
		if utf8.RuneStart(rest[len(rest)-i]) {
			if !utf8.FullRune(rest[len(rest)-i:]) {
				end = len(rest) - i
			}
			break
		}
	}
	s.binary = s.binary || !utf8.Valid(rest[:end]) || bytes.IndexByte(rest, 0) >= 0
	s.rune = append(s.rune, rest[end:]...)
	return len(p), nil
}

// MimeType is that of the bytes so far, or application/octet-stream.
func (s *Sniffer) MimeType() string {
	for _, sig := range signatures {
		if len(s.head) >= sig.at && bytes.HasPrefix(s.head[sig.at:], []byte(sig.magic)) {
			return sig.mime
		}
	}
	if s.binary || len(s.rune) > 0 {
		return "application/octet-stream"
	}
	return "text/plain; charset=utf-8"
}

// PartTypeOf is the type of the media part that shows a MIME type: image, audio,
// video, or else document.
func PartTypeOf(mimeType string) string {
	for _, media := range [...]string{PartImage, PartAudio, PartVideo} {
		if strings.HasPrefix(mimeType, media+"/") {
			return media
		}
	}
	return PartDocument
}

// MediaOf makes the media part that holds data: an image, audio, video or
// document by its first bytes, never without a MIME type.
func MediaOf(data []byte) Part {
	mime := MimeTypeOf(data)
	return Media(PartTypeOf(mime), Source{Type: SourceData, Value: base64.StdEncoding.EncodeToString(data), MimeType: mime})
}
