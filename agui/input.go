package agui

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// MaxInput is the longest [RunAgentInput], in bytes: a history may hold
// several media.
const MaxInput = 32 << 20

// RunAgentInput is the body of a request for a run.
type RunAgentInput struct {
	ThreadID string `json:"threadId"`
	RunID    string `json:"runId"`
	// ProtocolVersion is the client's; empty is absent: a client from before
	// 1.0. See [RunAgentInput.Legacy].
	ProtocolVersion string `json:"protocolVersion,omitempty"`
	ParentRunID     string `json:"parentRunId,omitempty"`
	// State is any JSON but null; nil reads as {}.
	State    json.RawMessage `json:"state,omitempty"`
	Messages []Message       `json:"messages"`
	// Tools are the client's own: their calls are answered by the client.
	Tools   []Tool    `json:"tools,omitempty"`
	Context []Context `json:"context,omitempty"`
	// ForwardedProps is any JSON but null; nil is absent.
	ForwardedProps json.RawMessage `json:"forwardedProps,omitempty"`
	Resume         []ResumeEntry   `json:"resume,omitempty"`
}

// Tool is a tool that an input advertises.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Parameters is meant to be a JSON Schema; nil is absent.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Metadata   Metadata        `json:"metadata,omitempty"`
}

// Context is a fact that an input gives along.
type Context struct {
	Description string `json:"description"`
	Value       string `json:"value"`
}

// ResumeEntry answers one [Interrupt] of an earlier run. Answers of tool calls
// never travel here.
type ResumeEntry struct {
	InterruptID string `json:"interruptId"`
	// Status is "resolved" or "cancelled".
	Status   string          `json:"status"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	Metadata Metadata        `json:"metadata,omitempty"`
}

// Interrupt is something that a run waits for from outside. The fleet relays
// interrupts and makes none.
type Interrupt struct {
	ID             string          `json:"id"`
	Reason         string          `json:"reason"`
	Message        string          `json:"message,omitempty"`
	ToolCallID     string          `json:"toolCallId,omitempty"`
	ResponseSchema json.RawMessage `json:"responseSchema,omitempty"`
	ExpiresAt      string          `json:"expiresAt,omitempty"`
	Metadata       Metadata        `json:"metadata,omitempty"`
	SubagentRunID  string          `json:"subagentRunId,omitempty"`
}

// MarshalJSON writes the input; its messages are never null.
func (in RunAgentInput) MarshalJSON() ([]byte, error) {
	type plain RunAgentInput
	if in.Messages == nil {
		in.Messages = []Message{}
	}
	return json.Marshal(plain(in))
}

// Legacy reports whether the client is from before 1.0, and so cannot read
// some of what 1.0 sends: [Downgrade] the events for it.
func (in RunAgentInput) Legacy() bool {
	return in.ProtocolVersion == "" || strings.HasPrefix(in.ProtocolVersion, "0.")
}

// Advertises reports whether the client brought a tool of this name.
func (in RunAgentInput) Advertises(name string) bool {
	for _, t := range in.Tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

// inputType stands for an event's type in warnings and errors about an input.
const inputType EventType = "RunAgentInput"

// DecodeInput reads an input, as strictly as [Decode] reads an event: a known
// member with a wrong value is an error of type [*MalformedError], which is an
// answer of 400 and not a run; unknown members, messages of unknown roles and
// parts of unknown types are left out with a warning. A protocolVersion of a
// newer minor is served; one of another major is refused.
func DecodeInput(data []byte) (RunAgentInput, []Warning, error) {
	r := reader{typ: inputType}
	in := r.input(data)
	if r.err != nil {
		return RunAgentInput{}, r.warnings, r.err
	}
	return in, r.warnings, nil
}

var inputMembers = []member{
	{"threadId", id, true},
	{"runId", id, true},
	{"protocolVersion", text, false},
	{"parentRunId", text, false},
	{"state", notNull, false},
	{"messages", objects, true},
	{"tools", objects, false},
	{"context", objects, false},
	{"forwardedProps", notNull, false},
	{"resume", objects, false},
}

var (
	toolMembers    = []member{{"name", id, true}, {"description", text, true}, {"parameters", notNull, false}, {"metadata", object, false}}
	contextMembers = []member{{"description", text, true}, {"value", text, true}}
	resumeMembers  = []member{{"interruptId", id, true}, {"status", resumeStatus, true}, {"payload", notNull, false}, {"metadata", object, false}}
)

func (r *reader) input(data []byte) (in RunAgentInput) {
	members := r.whole(data, MaxInput)
	if r.err != nil {
		return in
	}
	r.check("", inputMembers, members)
	r.strip("", inputMembers, members)
	if r.err != nil {
		return in
	}
	in.Messages = r.messages("messages", members["messages"])
	in.Tools = listOf[Tool](r, "tools", members["tools"], toolMembers)
	in.Context = listOf[Context](r, "context", members["context"], contextMembers)
	in.Resume = listOf[ResumeEntry](r, "resume", members["resume"], resumeMembers)
	in.State, in.ForwardedProps = members["state"], members["forwardedProps"]
	for name, to := range map[string]*string{
		"threadId": &in.ThreadID, "runId": &in.RunID, "protocolVersion": &in.ProtocolVersion, "parentRunId": &in.ParentRunID,
	} {
		*to = r.text(name, members[name])
	}
	r.version(in.ProtocolVersion)
	return in
}

// version refuses what nobody here can speak. What is no version at all is
// served, with a warning.
func (r *reader) version(v string) {
	if v == "" {
		return
	}
	number, _, _ := strings.Cut(v, ".")
	major, err := strconv.Atoi(number)
	switch {
	case err != nil || major < 0:
		r.warn("protocolVersion", "is not a version; the input is read as "+ProtocolVersion)
	case major > 1:
		r.malformed("protocolVersion", "is of a major version that is not spoken here; this is %s", ProtocolVersion)
	case v != ProtocolVersion && major == 1:
		r.warn("protocolVersion", "is a newer version; it is answered as "+ProtocolVersion)
	}
}

// listOf reads a list of objects of one shape.
func listOf[T any](r *reader, path string, raw json.RawMessage, known []member) []T {
	var out []T
	for i, item := range r.items(path, raw) {
		at := fmt.Sprintf("%s[%d].", path, i)
		r.check(at, known, item)
		r.strip(at, known, item)
		if r.err != nil {
			return nil
		}
		var t T
		if err := json.Unmarshal(mustJSON(item), &t); err != nil {
			r.malformed(at, "%v", err)
			return nil
		}
		out = append(out, t)
	}
	return out
}

// messageMembers is what a message of each role may have, besides its role.
var messageMembers = sync.OnceValue(func() map[Role][]member {
	return map[Role][]member{
		RoleDeveloper: named(member{"content", text, true}),
		RoleSystem:    named(member{"content", text, true}),
		RoleAssistant: named(member{"content", text, false}, member{"toolCalls", objects, false}),
		RoleUser:      named(member{"content", content, true}),
		RoleTool:      unnamed(member{"content", content, true}, member{"toolCallId", id, true}, member{"error", text, false}),
		RoleActivity: {
			{"id", id, true},
			{"activityType", id, true},
			{"content", object, true},
			{"metadata", object, false},
			{"subagentRunId", text, false},
		},
		RoleReasoning: unnamed(member{"content", text, true}),
	}
})

func unnamed(own ...member) []member {
	return append(own, member{"id", id, true}, member{"encryptedValue", text, false},
		member{"metadata", object, false}, member{"subagentRunId", text, false})
}

func named(own ...member) []member { return append(unnamed(own...), member{"name", text, false}) }

var (
	callMembers     = []member{{"id", id, true}, {"type", functionType, true}, {"function", object, true}, {"encryptedValue", text, false}, {"metadata", object, false}}
	functionMembers = []member{{"name", id, true}, {"arguments", text, true}}
)

// messages reads a history. A message of a role that nobody knows is left out.
func (r *reader) messages(path string, raw json.RawMessage) []Message {
	items := r.items(path, raw)
	out := make([]Message, 0, len(items))
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if m := r.message(at, item); m != nil {
			out = append(out, m)
		}
		if r.err != nil {
			return nil
		}
	}
	return out
}

func (r *reader) message(path string, members map[string]json.RawMessage) Message {
	if !isString(members["role"]) {
		r.malformed(path+".role", "expected a string")
		return nil
	}
	role := Role(r.text(path+".role", members["role"]))
	known, ok := messageMembers()[role]
	if !ok {
		r.warn(path, "unknown role; the message was left out")
		return nil
	}
	delete(members, "role")
	r.check(path+".", known, members)
	r.strip(path+".", known, members)
	if r.err != nil {
		return nil
	}
	switch role {
	case RoleDeveloper:
		return decoded[DeveloperMessage](r, path, members)
	case RoleSystem:
		return decoded[SystemMessage](r, path, members)
	case RoleAssistant:
		return r.assistant(path, members)
	case RoleUser:
		c := r.content(path+".content", members)
		m := decoded[UserMessage](r, path, members)
		m.Content = c
		return m
	case RoleTool:
		c := r.content(path+".content", members)
		m := decoded[ToolMessage](r, path, members)
		m.Content = c
		return m
	case RoleActivity:
		return decoded[ActivityMessage](r, path, members)
	}
	return decoded[ReasoningMessage](r, path, members)
}

// assistant reads an assistant message. Its calls inherit what they belong to.
func (r *reader) assistant(path string, members map[string]json.RawMessage) Message {
	raw := members["toolCalls"]
	delete(members, "toolCalls")
	m := decoded[AssistantMessage](r, path, members)
	for i, item := range r.items(path+".toolCalls", raw) {
		at := fmt.Sprintf("%s.toolCalls[%d].", path, i)
		r.check(at, callMembers, item)
		r.strip(at, callMembers, item)
		var function map[string]json.RawMessage
		if raw, ok := item["function"]; ok && json.Unmarshal(raw, &function) == nil {
			r.check(at+"function.", functionMembers, function)
			r.strip(at+"function.", functionMembers, function)
			item["function"] = mustJSON(function)
		}
		if r.err != nil {
			return nil
		}
		c := decoded[ToolCall](r, at, item)
		c.ParentMessageID, c.SubagentRunID = m.ID, m.SubagentRunID
		m.ToolCalls = append(m.ToolCalls, c)
	}
	return m
}

// content takes the content out of a message's members and reads it.
func (r *reader) content(path string, members map[string]json.RawMessage) Content {
	raw := members["content"]
	members["content"] = json.RawMessage(`""`)
	if begins(raw, '[') {
		return Content{Parts: r.parts(path, raw)}
	}
	return Content{Text: r.text(path, raw)}
}

// decoded reads members that were checked and stripped.
func decoded[T any](r *reader, path string, members map[string]json.RawMessage) T {
	var t T
	if err := json.Unmarshal(mustJSON(members), &t); err != nil {
		r.malformed(path, "%v", err)
	}
	return t
}

// items reads a list of objects; an absent one is empty.
func (r *reader) items(path string, raw json.RawMessage) []map[string]json.RawMessage {
	if raw == nil {
		return nil
	}
	var items []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		r.malformed(path, "%v", err)
	}
	return items
}

// text reads a string; an absent one is empty.
func (r *reader) text(path string, raw json.RawMessage) string {
	if raw == nil {
		return ""
	}
	s, ok := unquote(raw)
	if !ok {
		r.malformed(path, "expected a string")
	}
	return s
}
