package httpapi

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolfleet/toolfleet/call"
)

// callRequest is the body of POST /v1/calls.
type callRequest struct {
	Tool string `json:"tool" doc:"Name of the tool." example:"word-count"`
	// Arguments is the text, whichever way it came.
	Arguments  string `json:"arguments"`
	ToolCallID string `json:"toolCallId,omitempty" doc:"Id of the call in its thread; made when absent."`
	ThreadID   string `json:"threadId,omitempty" doc:"Thread the call belongs to; made when absent."`
	RunID      string `json:"runId,omitempty" doc:"Run the call belongs to; made when absent. Without an Idempotency-Key the same runId, threadId and toolCallId name the same call."`
	Timeout    string `json:"timeout,omitempty" doc:"Bounds the run of the tool, as a Go duration. No longer than the tool's own limit, which is the default." example:"10s"`
	Priority   string `json:"priority,omitempty" enum:"interactive,batch" doc:"interactive by default."`
	// Files are those that the tool finds in /workspace/in.
	Files []fileRequest `json:"files,omitempty" doc:"Files that the tool finds in /workspace/in, at most 16 and 64 MiB together. They are part of what the call is: the same ids with other files are refused (409)."`
}

// requestSchema describes a callRequest. It is written out because a field
// that is an object or a text has no Go type to derive it from.
func requestSchema(r huma.Registry) *huma.Schema {
	s := huma.SchemaFromType(r, reflect.TypeFor[callRequest]())
	s.Properties["arguments"] = &huma.Schema{
		Description: "The arguments: an object, or the raw text that a model produced. Text that is no JSON, arguments that do not fit the tool and arguments over 1 MiB are answered by an error result.",
		OneOf:       []*huma.Schema{{Type: huma.TypeObject, AdditionalProperties: true}, {Type: huma.TypeString}},
		Examples:    []any{map[string]any{"text": "to be or not to be"}},
	}
	s.Required = []string{"tool", "arguments"}
	s.AdditionalProperties = false
	return s
}

// decodeRequest reads a body strictly: one JSON object, every member known,
// in its exact case, and given once (decoders disagree on which of two counts,
// and encoding/json takes members in any case). Its errors are for the client
// and repeat nothing of the arguments.
func decodeRequest(body []byte) (callRequest, error) {
	if !utf8.Valid(body) {
		return callRequest{}, errors.New("the body is not UTF-8")
	}
	members, err := members(body)
	if err != nil {
		return callRequest{}, err
	}
	var (
		req  callRequest
		errs []error
	)
	texts := map[string]*string{
		"tool": &req.Tool, "toolCallId": &req.ToolCallID, "threadId": &req.ThreadID,
		"runId": &req.RunID, "timeout": &req.Timeout, "priority": &req.Priority,
	}
	for _, m := range members {
		text, known := texts[m.name]
		switch {
		case m.name == "arguments":
			if req.Arguments, err = argumentText(m.value); err != nil {
				errs = append(errs, err)
			}
		case m.name == "files":
			if req.Files, err = decodeFiles(m.value); err != nil {
				errs = append(errs, err)
			}
		case !known:
			errs = append(errs, fmt.Errorf("%q is not a member of a call", clip(m.name)))
		case m.value[0] != '"':
			errs = append(errs, fmt.Errorf("%s must be a string", m.name))
		default:
			if err := json.Unmarshal(m.value, text); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			}
		}
	}
	for _, name := range [...]string{"tool", "arguments"} {
		if !has(members, name) {
			errs = append(errs, fmt.Errorf("%s is required", name))
		}
	}
	return req, errors.Join(errs...)
}

// member is one member of an object, in the order of the text.
type member struct {
	name  string
	value json.RawMessage
}

func has(members []member, name string) bool {
	for _, m := range members {
		if m.name == name {
			return true
		}
	}
	return false
}

// members reads the members of the one JSON object that body is.
func members(body []byte) ([]member, error) {
	notJSON := errors.New("the body is not one JSON object")
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, notJSON
	}
	var out []member
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, notJSON
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, notJSON
		}
		if has(out, name) {
			return nil, fmt.Errorf("%q is given twice", clip(name))
		}
		if out = append(out, member{name, value}); len(out) > maxMembers {
			return nil, errors.New("the body has more members than a call can have")
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, notJSON
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, notJSON
	}
	return out, nil
}

// maxMembers is above the number of members that a call has; the check for
// doubles is a plain loop.
const maxMembers = 32

// argumentText returns arguments as the text that is checked and run: a string
// is the text itself, an object loses the space between its tokens, so that
// the same call sent in another layout is still the same call.
func argumentText(raw json.RawMessage) (string, error) {
	switch raw[0] {
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case '{':
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return "", errors.New("arguments are not JSON")
		}
		return b.String(), nil
	}
	return "", errors.New("arguments must be an object, or the text of one in a string")
}

// makeCall turns a request into a call. Ids that are absent are made: at
// random, or out of the idempotency key, so that the same request with the
// same key is the same call whichever ids it left out.
func makeCall(req callRequest, tenant, idempotencyKey, traceparent string) (call.Call, error) {
	timeout, err := parseTimeout(req.Timeout)
	if err != nil {
		return call.Call{}, err
	}
	suffix := rand.Text()
	if idempotencyKey != "" {
		sum := sha256.Sum256([]byte("toolfleet idempotency key\x00" + tenant + "\x00" + idempotencyKey))
		suffix = base32.StdEncoding.EncodeToString(sum[:])[:26]
	}
	suffix = strings.ToLower(suffix)
	c := call.Call{
		Tenant:      tenant,
		ThreadID:    or(req.ThreadID, "thread-"+suffix),
		RunID:       or(req.RunID, "run-"+suffix),
		ToolCallID:  or(req.ToolCallID, "call-"+suffix),
		Tool:        req.Tool,
		Arguments:   req.Arguments,
		Timeout:     timeout,
		Priority:    req.Priority,
		Traceparent: traceparent,
	}
	c.Scope = or(idempotencyKey, c.RunID)
	return c, nil
}

func or(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}

// parseTimeout reads a timeout; empty is the tool's own. Zero is refused: it
// would read as "none" to some and "at once" to others.
func parseTimeout(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("timeout %q is not a duration such as 10s", clip(s))
	}
	if d <= 0 || d > call.MaxTimeout {
		return 0, fmt.Errorf("timeout %s is not above 0 and at most %s", d, call.MaxTimeout)
	}
	return d, nil
}

// traceparentOf returns a W3C trace context that has the right form, or "".
func traceparentOf(h string) string {
	if len(h) != 55 || h[2] != '-' || h[35] != '-' || h[52] != '-' {
		return ""
	}
	for _, c := range []byte(h) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	return h
}

// wantsStream reports whether an Accept header takes an event stream.
func wantsStream(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		mediaType, params, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(mediaType), "text/event-stream") {
			q := strings.ReplaceAll(params, " ", "")
			return q != "q=0" && q != "q=0.0"
		}
	}
	return false
}

// badRequest is a 400 that lists what is wrong.
func badRequest(err error) error {
	return problem(http.StatusBadRequest, strings.ReplaceAll(err.Error(), "\n", "; "))
}
