package tool

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/sandbox/wire"
	"github.com/toolfleet/toolfleet/schema"
)

// A tool inside a sandbox may say more than bytes on stdout: file descriptor 3
// (its number is in TOOLFLEET_FD) takes messages, one JSON object a line.
//
//	{"type":"update","content":[parts],"current":3,"total":20,"message":"reading"}
//	{"type":"result","content":[parts],"is_error":false,"extra":[parts]}
//
// An update is cumulative: it takes the place of the one before. The first
// result is the call's answer, in place of stdout; later ones are ignored.
// Content may be a list of AG-UI parts or a string.

// Types of messages.
const (
	// MessageUpdate is the type of a message that tells progress.
	MessageUpdate = "update"
	// MessageResult is the type of a message that answers the call.
	MessageResult = "result"
)

// MaxMessage is the longest message, in bytes, without its newline.
const MaxMessage = wire.MaxMessage

// maxText bounds what a person reads of a message, in bytes: the sentence of
// an update, and what is wrong with it, where a decoder quotes the tool.
const maxText = 1 << 10

// maxDropped bounds how many dropped parts are told one by one.
const maxDropped = 10

// Result is the answer to a call. There is one shape of it in the project.
type Result = call.Result

// Reminder makes the usual part of a result's Extra: rules stapled to it.
func Reminder(text string) agui.Part { return call.Reminder(text) }

// Update tells how far a tool is. It is cumulative: each one takes the place of
// the one before, and any but the last may be lost.
type Update struct {
	// Content is what the tool has produced so far.
	Content []agui.Part
	// Current and Total measure progress in the tool's own unit; Total is 0
	// when it is not known.
	Current, Total float64
	// Message is a short sentence for people.
	Message string
	// Dropped says why parts that the sender put into Content are not in it.
	// It is set by [DecodeUpdate] and never sent.
	Dropped []string
}

// message is every member that a message can have.
type message struct {
	Type    string        `json:"type"`
	CallID  string        `json:"call_id,omitempty"`
	Content *agui.Content `json:"content,omitempty"`
	// Of updates.
	Current float64 `json:"current,omitempty"`
	Total   float64 `json:"total,omitempty"`
	Message string  `json:"message,omitempty"`
	// Of results.
	IsError bool        `json:"is_error,omitempty"`
	Extra   []agui.Part `json:"extra,omitempty"`
}

// encodeUpdate writes an update as a line without its newline.
func encodeUpdate(u Update) ([]byte, error) {
	m := message{Type: MessageUpdate, Current: u.Current, Total: u.Total, Message: u.Message}
	if u.Content != nil {
		m.Content = &agui.Content{Parts: u.Content}
	}
	return encode(m)
}

// encodeResult writes a result as a line without its newline. Error and
// Execution stay behind: only the fleet sets them.
func encodeResult(r Result) ([]byte, error) {
	parts := r.Content
	if parts == nil {
		parts = []agui.Part{}
	}
	return encode(message{Type: MessageResult, CallID: r.CallID, Content: &agui.Content{Parts: parts}, IsError: r.IsError, Extra: r.Extra})
}

// encode is json.Marshal without the escapes for HTML, which cost six bytes
// for one.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("tool: encode: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeUpdate reads an update message from a tool, whose every byte is
// hostile. Parts that no one could use are left out and told in Dropped.
func DecodeUpdate(raw []byte) (Update, error) {
	m, err := decode(raw, MessageUpdate)
	if err != nil {
		return Update{}, err
	}
	u := Update{Current: m.Current, Total: m.Total, Message: m.Message}
	u.Message = clip(u.Message)
	u.Content, u.Dropped = usable(m.Content.List())
	return u, nil
}

// DecodeResult reads a result message from a tool, whose every byte is
// hostile. Parts that no one could use are left out, since one of them must
// not cost the call its answer, and told in the result's Dropped.
func DecodeResult(raw []byte) (Result, error) {
	m, err := decode(raw, MessageResult)
	if err != nil {
		return Result{}, err
	}
	r := Result{IsError: m.IsError}
	r.Content, r.Dropped = usable(m.Content.List())
	extra, dropped := usable(m.Extra)
	r.Extra, r.Dropped = extra, append(r.Dropped, dropped...)
	return r, nil
}

// DecodeParts reads a list of content parts from a tool, such as its stdout
// when its spec says "output: parts". Parts that no one could use are left out
// and told in dropped, as in a message.
func DecodeParts(raw []byte) (parts []agui.Part, dropped []string, err error) {
	if err := checkParts(raw, depthInList); err != nil {
		return nil, nil, fmt.Errorf("tool: the list of parts %w", err)
	}
	if problems := schema.CheckJSON(raw, len(raw)); problems != nil {
		return nil, nil, fmt.Errorf("tool: the list of parts %s", problems[0])
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, nil, errors.New("tool: not a list of content parts")
	}
	parts, dropped = usable(parts)
	return parts, dropped, nil
}

// decode reads a message of one type, strictly.
func decode(raw []byte, want string) (message, error) {
	m := message{Content: &agui.Content{}}
	if err := checkParts(raw, depthInMessage); err != nil {
		return m, fmt.Errorf("tool: the %s message %w", want, err)
	}
	if problems := schema.CheckJSON(raw, MaxMessage); problems != nil {
		return m, fmt.Errorf("tool: the %s message %s", want, problems[0])
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return m, fmt.Errorf("tool: the %s message is malformed: %s", want, clip(err.Error()))
	}
	if m.Type != want {
		return m, fmt.Errorf("tool: the message is no %s", want)
	}
	if m.Content == nil { // null
		m.Content = &agui.Content{}
	}
	return m, nil
}

// clip bounds s without splitting a rune.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// usable keeps the parts that may reach a client, and says why others may not.
func usable(parts []agui.Part) (kept []agui.Part, dropped []string) {
	more := 0
	for i, p := range parts {
		if string(p.Metadata) == "null" {
			p.Metadata = nil
		}
		if err := check(p); err != nil {
			if len(dropped) == maxDropped {
				more++
				continue
			}
			dropped = append(dropped, fmt.Sprintf("part %d: %v", i, err))
			continue
		}
		if p.Source != nil {
			p.Text = "" // a media part has none
		}
		kept = append(kept, p)
	}
	if more > 0 {
		dropped = append(dropped, fmt.Sprintf("and %d more parts", more))
	}
	return kept, dropped
}

// maxHandle bounds a file's handle, in bytes.
const maxHandle = 512

// check is [agui.Part.Validate] and what the fleet asks of a tool beyond it.
// A file is a handle at a named provider; whether the tool may name it, only
// who knows the call can tell. A URL is one that a client fetches; any other
// scheme, first of all the fleet's own for blobs, could name what the tool may
// not see.
func check(p agui.Part) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if p.Source == nil {
		return nil
	}
	switch p.Source.Type {
	case agui.SourceFile:
		if p.Source.Provider == "" || len(p.Source.Value) > maxHandle {
			return errors.New("the file handle has no provider or is too long")
		}
	case agui.SourceURL:
		if u, err := url.Parse(p.Source.Value); err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
			return errors.New("the url is not an http or https one")
		}
	case agui.SourceData:
		switch data, err := base64.StdEncoding.DecodeString(p.Source.Value); {
		case err != nil:
			return errors.New("the data is not base64")
		case len(data) == 0:
			return errors.New("the data is empty")
		}
	}
	return nil
}
