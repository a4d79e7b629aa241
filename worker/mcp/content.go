package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/tool"
)

const (
	// metaResource marks a part that came from a resource, or stands for one.
	metaResource = "toolfleet.resource"
	// maxURI and maxMIME bound what a server names things by, in bytes.
	maxURI  = 2 << 10
	maxMIME = 255
	// maxCompared bounds a text that is looked at for what a structure says, in
	// bytes: as JSON it may take forty times that to hold.
	maxCompared = 1 << 20
	// maxDropped bounds how many blocks that were left out are told one by one.
	maxDropped = 10
)

// parts makes content parts of a server's content blocks, in order. A block that
// nobody could use is left out, and dropped says why.
func parts(blocks []mcp.Content) (kept []agui.Part, dropped []string) {
	drop := func(i int, why string) {
		if len(dropped) < maxDropped {
			dropped = append(dropped, fmt.Sprintf("content block %d: %s", i, why))
		}
	}
	for i, block := range blocks {
		if i == tool.MaxParts {
			drop(i, fmt.Sprintf("there are more than %d", tool.MaxParts))
			break
		}
		p, why := part(block)
		if why != "" {
			drop(i, why)
			continue
		}
		kept = append(kept, p)
	}
	return kept, dropped
}

// part makes a part of one block, or says why it cannot be one.
func part(block mcp.Content) (p agui.Part, why string) {
	switch b := block.(type) {
	case *mcp.TextContent:
		return agui.Text(b.Text), ""
	case *mcp.ImageContent:
		return media(b.Data, b.MIMEType, agui.PartImage)
	case *mcp.AudioContent:
		return media(b.Data, b.MIMEType, agui.PartAudio)
	case *mcp.EmbeddedResource:
		return embedded(b.Resource)
	case *mcp.ResourceLink:
		return link(b), ""
	}
	return p, "a kind that no result has"
}

// embedded is a resource that came whole.
func embedded(r *mcp.ResourceContents) (p agui.Part, why string) {
	switch {
	case r == nil:
		return p, "a resource without contents"
	case r.Blob != nil:
		p, why = media(r.Blob, r.MIMEType, "")
	default:
		p = agui.Text(r.Text)
	}
	p.Metadata = resource{URI: r.URI, MIMEType: r.MIMEType}.metadata()
	return p, why
}

// link is a resource that stayed where it is. One on the web becomes a part that
// a client can fetch; any other is only of use to the server, and is named in
// words.
func link(l *mcp.ResourceLink) agui.Part {
	about := resource{URI: l.URI, Name: l.Name, Title: l.Title, Description: l.Description, MIMEType: l.MIMEType, Size: l.Size}
	mimeType, _ := mediaType(l.MIMEType)
	var p agui.Part
	if onTheWeb(l.URI) {
		p = agui.Media(kindOf(mimeType), agui.Source{Type: agui.SourceURL, Value: l.URI, MimeType: mimeType})
	} else {
		words := []string{"Resource", clip(l.Name)}
		if mimeType != "" {
			words = append(words, "("+mimeType+")")
		}
		p = agui.Text(strings.Join(words, " ") + ": " + clip(l.URI))
		if l.Description != "" {
			p.Text += "\n" + clip(l.Description)
		}
	}
	p.Metadata = about.metadata()
	return p
}

func onTheWeb(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && len(uri) <= maxURI && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

// resource is what a part's metadata tells of the resource it came from.
type resource struct {
	URI         string `json:"uri,omitempty"`
	Name        string `json:"name,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	MIMEType    string `json:"mimeType,omitempty"`
	Size        *int64 `json:"size,omitempty"`
}

func (r resource) metadata() json.RawMessage {
	for _, word := range []*string{&r.URI, &r.Name, &r.Title, &r.Description, &r.MIMEType} {
		*word = clip(*word)
	}
	raw, err := json.Marshal(map[string]resource{metaResource: r})
	if err != nil {
		return nil // strings and a number always encode
	}
	return raw
}

// media is the part that holds data. Its bytes say what it is; only where they
// do not say anything certain is the server believed, and never that an image is
// something else than an image (want, when it is not empty).
func media(data []byte, declared, want string) (p agui.Part, why string) {
	if len(data) == 0 {
		return p, "no data"
	}
	p = agui.MediaOf(data)
	if mimeType, ok := mediaType(declared); ok && vague(p.Source.MimeType) && (want == "" || kindOf(mimeType) == want) {
		p = agui.Media(kindOf(mimeType), agui.Source{
			Type: agui.SourceData, Value: base64.StdEncoding.EncodeToString(data), MimeType: mimeType,
		})
	}
	return p, ""
}

// vague are the sniffed types that many others look like.
func vague(mimeType string) bool {
	switch mimeType {
	case "application/octet-stream", "application/zip", "application/gzip", "text/plain; charset=utf-8":
		return true
	}
	return false
}

// mediaType is a MIME type that a server names, in its usual form.
func mediaType(s string) (mimeType string, ok bool) {
	name, params, err := mime.ParseMediaType(s)
	if err != nil || len(s) > maxMIME || strings.Count(name, "/") != 1 {
		return "", false
	}
	mimeType = mime.FormatMediaType(name, params)
	return mimeType, mimeType != "" && len(mimeType) <= maxMIME
}

// kindOf is the type of the part that holds mimeType.
func kindOf(mimeType string) string {
	top, _, _ := strings.Cut(mimeType, "/")
	switch top {
	case agui.PartImage, agui.PartAudio, agui.PartVideo:
		return top
	}
	return agui.PartDocument
}

// unsaid is structured content as JSON text, or "" when the texts among the parts
// say the same: as JSON, or as the one string that the structure wraps.
func unsaid(said []agui.Part, structured json.RawMessage) string {
	value, ok := decode(structured)
	if !ok || value == nil {
		return ""
	}
	var whole strings.Builder
	for _, p := range said {
		if p.Type != agui.PartText || len(p.Text) > maxCompared {
			continue
		}
		if v, ok := decode([]byte(p.Text)); ok && reflect.DeepEqual(v, value) {
			return ""
		}
		whole.WriteString(p.Text)
	}
	if object, ok := value.(map[string]any); ok && len(object) == 1 {
		for _, member := range object {
			if member == whole.String() {
				return ""
			}
		}
	}
	var compact bytes.Buffer
	if json.Compact(&compact, structured) != nil {
		return ""
	}
	return compact.String()
}

// decode reads one JSON value, its numbers as they are written.
func decode(raw []byte) (v any, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	err := dec.Decode(&v)
	return v, err == nil && !dec.More()
}
