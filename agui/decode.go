package agui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Bounds on one event from outside.
const (
	// MaxEvent is the longest event, in bytes. The official client gives up on
	// a longer one too.
	MaxEvent = 10 << 20
	// MaxDepth is the deepest nesting of an event.
	MaxDepth = 128
)

// Warning says what was left out of an event that is otherwise sound: a peer of
// a newer version, or one that invents. It is never fatal and never silent.
type Warning struct {
	// N is the number of the event in its stream, from 1; 0 when it is not in
	// one.
	N int
	// Type is the event's type.
	Type EventType
	// Field is the path of what was left out; "" is the whole event.
	Field string
	// Message says why.
	Message string
}

// String is the warning as a line for a log.
func (w Warning) String() string { return where(w.N, w.Type, w.Field) + w.Message }

// MalformedError says that an event breaks the protocol. Its stream cannot go
// on: nobody knows what the peer meant.
type MalformedError struct {
	// N is the number of the event in its stream, from 1; 0 when it is not in
	// one.
	N int
	// Type is the event's type, or "" when it has none.
	Type EventType
	// Field is the path of the faulty member; "" is the whole event.
	Field string
	// Message says what was expected.
	Message string
}

// Error implements error.
func (e *MalformedError) Error() string {
	return "agui: " + where(e.N, e.Type, e.Field) + e.Message
}

func where(n int, t EventType, field string) string {
	s := "event"
	if t == inputType {
		s, t = "input", ""
	}
	if n > 0 {
		s = fmt.Sprintf("event %d", n)
	}
	if t != "" {
		s += " " + clip(string(t))
	}
	if field != "" {
		s += ": " + clip(field)
	}
	return s + ": "
}

// clip bounds what a message repeats of a peer's text.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}

// Decoder decodes the events of one stream and counts them for its messages.
// The zero value is ready. It is not safe for concurrent use.
type Decoder struct {
	n int
}

// Decode decodes the next event; see [Decode].
func (d *Decoder) Decode(data []byte) (Event, []Warning, error) {
	d.n++
	return decode(d.n, data)
}

// Decode reads one event, strictly: a known member with a wrong value is an
// error of type [*MalformedError]. What the protocol does not know is left
// out with a warning: a member, a content part of a new type, a whole event,
// for which Decode returns a nil Event. Events of the protocol that this
// package has no Go type for come as [Other], byte for byte.
func Decode(data []byte) (Event, []Warning, error) { return decode(0, data) }

func decode(n int, data []byte) (Event, []Warning, error) {
	r := reader{n: n}
	ev := r.event(data)
	if r.err != nil {
		return nil, r.warnings, r.err
	}
	return ev, r.warnings, nil
}

// reader reads one event. It keeps the first error, and reading goes on.
type reader struct {
	n        int
	typ      EventType
	warnings []Warning
	err      *MalformedError
}

func (r *reader) malformed(field, format string, args ...any) {
	if r.err == nil {
		r.err = &MalformedError{N: r.n, Type: r.typ, Field: field, Message: fmt.Sprintf(format, args...)}
	}
}

// warn notes what was left out. A hostile event can hold a million unknown
// members; a hundred warnings tell enough.
func (r *reader) warn(field, message string) {
	const most = 100
	if len(r.warnings) < most {
		r.warnings = append(r.warnings, Warning{r.n, r.typ, field, message})
	}
}

// event reads one event, or returns nil after an error or a warning.
func (r *reader) event(data []byte) Event {
	members := r.whole(data, MaxEvent)
	if r.err != nil {
		return nil
	}
	name, ok := unquote(members["type"])
	if !ok || name == "" {
		r.malformed("type", "expected the name of an event type")
		return nil
	}
	r.typ = EventType(name)
	if shape, ok := shapes()[r.typ]; ok {
		return r.typed(shape, members, data)
	}
	known, ok := relayed()[r.typ]
	if !ok {
		r.warn("", "unknown event type; the event was left out")
		return nil
	}
	r.check("", known, members)
	for _, name := range unknown(known, members) {
		r.warn(name, "unknown member; it is passed on")
	}
	return Other{Type: r.typ, JSON: data}
}

// whole reads a bounded object, and nothing of what is in it.
func (r *reader) whole(data []byte, most int) (members map[string]json.RawMessage) {
	switch {
	case len(data) > most:
		r.malformed("", "is %d bytes long, and at most %d are allowed", len(data), most)
	case tooDeep(data):
		r.malformed("", "is nested deeper than %d levels", MaxDepth)
	case !json.Valid(data):
		r.malformed("", "expected a JSON object")
	default:
		if members = split(data); members == nil {
			r.malformed("", "expected a JSON object")
		}
	}
	return members
}

// typed reads an event that has a Go type.
func (r *reader) typed(shape shape, members map[string]json.RawMessage, data []byte) Event {
	r.check("", shape.members, members)
	changed := r.strip("", shape.members, members)
	if r.err != nil {
		return nil
	}
	if ev := r.generated(members); ev != nil {
		return ev
	}
	// Objects that may be of a type nobody knows yet are read on their own.
	var parts []Part
	if raw := members["content"]; r.typ == TypeToolCallResult && begins(raw, '[') {
		parts = r.parts("content", raw)
		members["content"], changed = json.RawMessage(`""`), true
	}
	var outcome *Outcome
	if raw, ok := members["outcome"]; ok {
		outcome = r.outcome(raw)
		delete(members, "outcome")
		changed = true
	}
	var usage []TokenUsage
	if raw, ok := members["usage"]; ok {
		usage = listOf[TokenUsage](r, "usage", raw, usageMembers)
		delete(members, "usage")
		changed = true
	}
	if changed {
		// Not the bytes that came: what was left out must not come back, and
		// encoding/json takes a member that differs in case for the known one.
		data = mustJSON(members)
	}
	ev, err := shape.decode(data)
	if err != nil {
		r.malformed("", "%v", err)
		return nil
	}
	switch e := ev.(type) {
	case RunFinished:
		e.Outcome, e.Usage = outcome, usage
		return e
	case RunError:
		e.Usage = usage
		return e
	case ToolCallResult:
		e.Content.Parts = parts
		return e
	case ActivityDelta:
		for i, op := range e.Patch {
			if reason := op.check(); reason != "" {
				r.malformed(fmt.Sprintf("patch[%d]", i), "%s", reason)
			}
		}
	}
	return ev
}

// generated reads the events that generate a call, of which a stream has
// thousands; nil for all others.
func (r *reader) generated(members map[string]json.RawMessage) Event {
	text := func(name string) string { return r.text(name, members[name]) }
	optional := func(name string) *string {
		if members[name] == nil {
			return nil
		}
		s := text(name)
		return &s
	}
	switch r.typ {
	case TypeToolCallStart:
		return ToolCallStart{r.base(members), text("toolCallId"), text("toolCallName"), text("parentMessageId")}
	case TypeToolCallArgs:
		return ToolCallArgs{r.base(members), text("toolCallId"), text("delta")}
	case TypeToolCallEnd:
		return ToolCallEnd{r.base(members), text("toolCallId")}
	case TypeToolCallChunk:
		return ToolCallChunk{r.base(members), optional("toolCallId"), optional("toolCallName"), optional("parentMessageId"), optional("delta")}
	}
	return nil
}

// base reads the members that every event may have.
func (r *reader) base(members map[string]json.RawMessage) (b Base) {
	b.SubagentRunID = r.text("subagentRunId", members["subagentRunId"])
	b.RawEvent = bytes.Clone(members["rawEvent"])
	if raw := members["timestamp"]; raw != nil {
		n, _ := strconv.ParseInt(string(raw), 10, 64) // its kind was checked
		b.Timestamp = &n
	}
	if raw := members["metadata"]; raw != nil {
		if err := json.Unmarshal(raw, &b.Metadata); err != nil {
			r.malformed("metadata", "%v", err)
		}
	}
	return b
}

// check compares the members of an object with what they must be.
func (r *reader) check(path string, known []member, members map[string]json.RawMessage) {
	for _, m := range known {
		raw, present := members[m.name]
		switch {
		case !present && m.required:
			r.malformed(path+m.name, "is missing")
		case present && !m.is.check(raw):
			r.malformed(path+m.name, "expected %s", m.is.name)
		}
	}
}

// strip leaves out unknown members, and reports whether there were any.
func (r *reader) strip(path string, known []member, members map[string]json.RawMessage) (stripped bool) {
	for _, name := range unknown(known, members) {
		r.warn(path+name, "unknown member; it was left out")
		delete(members, name)
		stripped = true
	}
	return stripped
}

// unknown lists the members that the protocol does not know, sorted.
func unknown(known []member, members map[string]json.RawMessage) (names []string) {
	for name := range members {
		if name != "type" && !slices.ContainsFunc(known, func(m member) bool { return m.name == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// variant reads the type of an object that is one of several, checks it against
// that type's members and strips the rest. It reports false for a type that the
// protocol does not know.
func (r *reader) variant(path string, of map[string][]member, members map[string]json.RawMessage) bool {
	typ, ok := unquote(members["type"])
	if !ok {
		r.malformed(path+"type", "expected a string")
		return true
	}
	known, ok := of[typ]
	if ok {
		r.check(path, known, members)
		r.strip(path, known, members)
	}
	return ok
}

// outcome reads how a run ended. One of an unknown type reads as success, as
// the protocol says.
func (r *reader) outcome(raw json.RawMessage) *Outcome {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		r.malformed("outcome", "%v", err)
		return nil
	}
	if !r.variant("outcome.", outcomes, members) {
		r.warn("outcome", "unknown type of outcome; it was left out and reads as success")
		return nil
	}
	interrupts := listOf[Interrupt](r, "outcome.interrupts", members["interrupts"], interruptMembers)
	delete(members, "interrupts")
	var o Outcome
	if err := json.Unmarshal(mustJSON(members), &o); err != nil {
		r.malformed("outcome", "%v", err)
	}
	o.Interrupts = interrupts
	return &o
}

// parts leaves out parts of a type or with a source that the protocol does not
// know, and refuses known ones that are not whole.
func (r *reader) parts(path string, raw json.RawMessage) []Part {
	items := r.items(path, raw)
	kept := make([]Part, 0, len(items))
	for i, item := range items {
		field := fmt.Sprintf("%s[%d]", path, i)
		if !r.variant(field+".", partTypes, item) {
			r.warn(field, "unknown type of part; it was left out")
			continue
		}
		if source, isMedia := item["source"]; isMedia {
			var members map[string]json.RawMessage
			if json.Unmarshal(source, &members) == nil && !r.variant(field+".source.", sourceTypes, members) {
				r.warn(field, "unknown type of source; the part was left out")
				continue
			}
			item["source"] = mustJSON(members)
		}
		if r.err != nil {
			return nil
		}
		var p Part
		if err := json.Unmarshal(mustJSON(item), &p); err != nil {
			r.malformed(field, "%v", err)
			return nil
		}
		kept = append(kept, p)
	}
	return kept
}

// tooDeep reports whether data nests deeper than MaxDepth. It counts brackets
// outside of strings, so it is right for JSON and harmless for anything else.
func tooDeep(data []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("agui: " + err.Error()) // raw members were JSON when they came
	}
	return raw
}
