package agui

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// The content part types of AG-UI 1.0. No other may reach the wire.
const (
	PartText     = "text"
	PartImage    = "image"
	PartAudio    = "audio"
	PartVideo    = "video"
	PartDocument = "document"
)

// The source types of a media part.
const (
	SourceData = "data"
	SourceURL  = "url"
	SourceFile = "file"
)

// Part is one piece of content: a text, or media with a source. It is the only
// shape of a content part in the project.
type Part struct {
	// Type is one of the Part constants.
	Type string
	// ID is optional; empty is absent.
	ID string
	// Text is the text of a text part; it may be empty.
	Text string
	// Source is where the bytes of a media part are; nil on a text part.
	Source *Source
	// Metadata is any JSON but null; nil is absent.
	Metadata json.RawMessage
}

// Source says where the bytes of a media part are.
type Source struct {
	// Type is one of the Source constants.
	Type string `json:"type"`
	// Value is base64 text for data, a URL for url, a handle for file.
	Value string `json:"value"`
	// MimeType is required for data.
	MimeType string `json:"mimeType,omitempty"`
	// Provider is a lower-case vendor id, for file only.
	Provider string `json:"provider,omitempty"`
}

// Text makes a text part.
func Text(s string) Part { return Part{Type: PartText, Text: s} }

// Media makes a media part of the given type.
func Media(partType string, src Source) Part { return Part{Type: partType, Source: &src} }

type textPart struct {
	Type     string          `json:"type"`
	ID       string          `json:"id,omitempty"`
	Text     string          `json:"text"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

type mediaPart struct {
	Type     string          `json:"type"`
	ID       string          `json:"id,omitempty"`
	Source   *Source         `json:"source"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// MarshalJSON writes the members that the part's type has, and no others. A
// part of a type that the protocol does not have is refused: it must not reach
// the wire.
func (p Part) MarshalJSON() ([]byte, error) {
	switch p.Type {
	case PartText:
		return marshal(textPart{p.Type, p.ID, p.Text, p.Metadata})
	case PartImage, PartAudio, PartVideo, PartDocument:
		if p.Source == nil {
			return nil, errors.New("agui: media part without a source")
		}
		return marshal(mediaPart{p.Type, p.ID, p.Source, p.Metadata})
	}
	return nil, errors.New("agui: unknown part type")
}

// marshal is json.Marshal without the escapes for HTML, which make six bytes
// of one. Whoever wants them gets them from the outer encoder.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reads any part shape; it does not judge the type. Use
// [Part.Validate] for bytes from outside.
func (p *Part) UnmarshalJSON(data []byte) error {
	var w struct {
		Type     string          `json:"type"`
		ID       string          `json:"id"`
		Text     string          `json:"text"`
		Source   *Source         `json:"source"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*p = Part(w)
	return nil
}

// Validate says what is wrong with a part that came from outside: an unknown
// type, a media part without a usable source, data without a MIME type.
func (p Part) Validate() error {
	switch p.Type {
	case PartText:
		if p.Source != nil {
			return errors.New("text part with a source")
		}
		return nil
	case PartImage, PartAudio, PartVideo, PartDocument:
	default:
		return errors.New("unknown part type")
	}
	switch {
	case p.Source == nil:
		return errors.New("media part without a source")
	case p.Source.Value == "" && p.Source.Type != SourceData: // a file may be empty
		return errors.New("source without a value")
	case p.Source.Type == SourceData && p.Source.MimeType == "":
		return errors.New("data source without a mimeType")
	case p.Source.Type != SourceData && p.Source.Type != SourceURL && p.Source.Type != SourceFile:
		return errors.New("unknown source type")
	}
	return nil
}

// Content is the content of a tool result: one string, or an ordered list of
// parts. A nil Parts means the string form.
type Content struct {
	Text  string
	Parts []Part
}

// ContentOf takes the string form for no part or one bare text part, and the list
// form for everything else.
func ContentOf(parts []Part) Content {
	switch {
	case len(parts) == 0:
		return Content{}
	case len(parts) == 1 && parts[0].Type == PartText && parts[0].ID == "" && parts[0].Metadata == nil:
		return Content{Text: parts[0].Text}
	}
	return Content{Parts: parts}
}

// List returns the content as parts; the empty string is no part.
func (c Content) List() []Part {
	if c.Parts != nil {
		return c.Parts
	}
	if c.Text == "" {
		return nil
	}
	return []Part{Text(c.Text)}
}

// Flatten joins the text parts with nothing between, for peers and holders
// that take a string only, and names the types of the parts it dropped. No
// placeholder stands where a part was dropped.
func (c Content) Flatten() (text string, dropped []string) {
	if c.Parts == nil {
		return c.Text, nil
	}
	var b strings.Builder
	for _, p := range c.Parts {
		if p.Type == PartText {
			b.WriteString(p.Text)
		} else {
			dropped = append(dropped, p.Type)
		}
	}
	return b.String(), dropped
}

// MarshalJSON writes a string or a list.
func (c Content) MarshalJSON() ([]byte, error) {
	if c.Parts != nil {
		return marshal(c.Parts)
	}
	return marshal(c.Text)
}

// UnmarshalJSON reads a string or a list.
func (c *Content) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	*c = Content{}
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &c.Text)
	}
	if err := json.Unmarshal(data, &c.Parts); err != nil {
		return err
	}
	if c.Parts == nil {
		return errors.New("agui: content is neither a string nor a list")
	}
	return nil
}
