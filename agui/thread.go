package agui

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Thread keeps the messages and the state of a thread up to date with a
// stream, as a client would: whoever runs an agent again in the same thread
// sends it what the thread has become. Give it expanded and verified events: it
// trusts their order. Activities are left out; they are not for an agent. It is
// not safe for concurrent use.
type Thread struct {
	entries []*entry
	state   json.RawMessage
	byID    map[string]*entry
	calls   map[string]*threadCall
	lanes   map[string]*entry // the message of a lane's text chunks
	size    int               // bytes added
	patched int               // bytes of state that were patched
}

// entry is a message and what a stream added to it. The texts grow in builders:
// a text in a million pieces must not be copied a million times.
type entry struct {
	m     Message
	text  strings.Builder
	said  bool // the stream gave it a text, which may be empty
	calls []*threadCall
}

// threadCall is a call and what a stream added to its arguments.
type threadCall struct {
	call      ToolCall
	arguments strings.Builder
	in        *entry
}

// maxThread bounds what a stream may add to a thread, in bytes; an entry counts
// for entrySize.
const (
	maxThread = 64 << 20
	entrySize = 512
)

// maxPatched bounds the work of patching a state, in bytes of state: a few
// bytes of patch make a large state be written anew.
const maxPatched = 1 << 30

// NewThread begins with what an input holds.
func NewThread(in RunAgentInput) *Thread {
	t := &Thread{state: in.State}
	t.reset(in.Messages)
	return t
}

// reset makes messages all there is.
func (t *Thread) reset(messages []Message) {
	t.entries, t.byID, t.calls, t.lanes = nil, map[string]*entry{}, map[string]*threadCall{}, map[string]*entry{}
	for _, m := range messages {
		if m.MessageRole() == RoleActivity {
			continue
		}
		e := t.push(m)
		if a, ok := m.(AssistantMessage); ok {
			for _, c := range a.ToolCalls {
				t.open(e, c)
			}
		}
	}
}

func (t *Thread) push(m Message) *entry {
	e := &entry{m: m}
	t.entries = append(t.entries, e)
	t.byID[m.MessageID()] = e
	return e
}

func (t *Thread) open(e *entry, c ToolCall) {
	tc := &threadCall{call: c, in: e}
	e.calls = append(e.calls, tc)
	t.calls[c.ID] = tc
}

// Messages are the thread's messages now.
func (t *Thread) Messages() []Message {
	out := make([]Message, len(t.entries))
	for i, e := range t.entries {
		out[i] = e.message()
	}
	return out
}

// CarrierOf is the id of the message that carries a call: its parent, or the
// message that was made for it where it names none, or none that can carry it.
// It is "" for a call that the thread does not know.
func (t *Thread) CarrierOf(toolCallID string) string {
	c := t.calls[toolCallID]
	if c == nil {
		return ""
	}
	return c.in.m.MessageID()
}

// State is the thread's state now; nil reads as {}.
func (t *Thread) State() json.RawMessage { return t.state }

// message puts an entry together.
func (e *entry) message() Message {
	switch m := e.m.(type) {
	case AssistantMessage:
		if e.said {
			text := deref(m.Content) + e.text.String()
			m.Content = &text
		}
		m.ToolCalls = nil
		for _, c := range e.calls {
			whole := c.call
			whole.Arguments += c.arguments.String()
			m.ToolCalls = append(m.ToolCalls, whole)
		}
		return m
	case UserMessage:
		if e.said {
			m.Content.Text += e.text.String()
		}
		return m
	case SystemMessage:
		m.Content += e.text.String()
		return m
	case DeveloperMessage:
		m.Content += e.text.String()
		return m
	case ReasoningMessage:
		m.Content += e.text.String()
		return m
	}
	return e.m
}

// Add takes the next event. The error says that the stream adds too much, or
// that a snapshot of messages is malformed; the warnings say what of one was
// left out, or that a patch of the state did not apply and was skipped.
func (t *Thread) Add(e Event) ([]Warning, error) {
	switch e := e.(type) {
	case ToolCallStart:
		return nil, t.start(e)
	case ToolCallArgs:
		return nil, t.extend(e.ToolCallID, e.Delta, e.Metadata)
	case ToolCallEnd:
		return nil, t.extend(e.ToolCallID, "", e.Metadata)
	case ToolCallResult:
		return nil, t.result(e)
	case Other:
		return t.other(e)
	}
	return nil, nil
}

func (t *Thread) grow(n int) error {
	if t.size += n; t.size > maxThread {
		return fmt.Errorf("agui: a stream added more than %d bytes to its thread", maxThread)
	}
	return nil
}

// start adds a call to the message that carries it, or makes that message.
func (t *Thread) start(e ToolCallStart) error {
	if t.calls[e.ToolCallID] == nil {
		parent := carrier(e.ParentMessageID, e.ToolCallID)
		owner := t.byID[parent]
		if owner != nil && owner.m.MessageRole() != RoleAssistant {
			parent, owner = e.ToolCallID, nil // a call is nobody else's to make
		}
		if owner == nil {
			owner = t.push(AssistantMessage{MessageBase: MessageBase{ID: parent, SubagentRunID: e.SubagentRunID}})
		}
		t.open(owner, ToolCall{ID: e.ToolCallID, Name: e.ToolCallName, ParentMessageID: parent, SubagentRunID: e.SubagentRunID})
		if err := t.grow(entrySize + len(parent) + len(e.ToolCallID) + len(e.ToolCallName)); err != nil {
			return err
		}
	}
	return t.extend(e.ToolCallID, "", e.Metadata)
}

func (t *Thread) extend(id, delta string, m Metadata) error {
	c := t.calls[id]
	if c == nil {
		return nil
	}
	c.arguments.WriteString(delta)
	if len(m) > 0 {
		merged := maps.Clone(c.call.Metadata)
		if merged == nil {
			merged = Metadata{}
		}
		maps.Copy(merged, m)
		c.call.Metadata = merged
	}
	return t.grow(len(delta) + m.size())
}

// result seats the tool message behind the message that made the call and the
// answers that are there.
func (t *Thread) result(e ToolCallResult) error {
	m := t.push(e.Message())
	if c := t.calls[e.ToolCallID]; c != nil {
		at := len(t.entries) - 1 // the owner is among the last
		for at > 0 && t.entries[at-1] != c.in {
			at--
		}
		for at < len(t.entries)-1 && t.entries[at].m.MessageRole() == RoleTool {
			at++
		}
		t.entries = slices.Insert(t.entries[:len(t.entries)-1], at, m)
	}
	n := entrySize + e.Metadata.size()
	for _, p := range e.Content.List() {
		n += len(p.Text) + len(p.Metadata)
		if p.Source != nil {
			n += len(p.Source.Value)
		}
	}
	return t.grow(n)
}

// size is about what a map holds, in bytes.
func (m Metadata) size() (n int) {
	for key, value := range m {
		n += len(key) + len(value)
	}
	return n
}

// other applies the relayed events that build messages or the state.
func (t *Thread) other(o Other) ([]Warning, error) {
	switch o.Type {
	case "TEXT_MESSAGE_START", "REASONING_MESSAGE_START":
		return nil, t.text(o)
	case "TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "TEXT_MESSAGE_CHUNK", "REASONING_MESSAGE_CHUNK":
		return nil, t.text(o)
	case "REASONING_ENCRYPTED_VALUE":
		return nil, t.encrypted(o)
	case "MESSAGES_SNAPSHOT":
		return t.snapshot(o)
	case "STATE_SNAPSHOT":
		if s := split(o.JSON)["snapshot"]; s != nil && string(s) != "null" {
			t.state = s
		}
	case "STATE_DELTA":
		return t.patch(o)
	}
	return nil, nil
}

// text opens a message, or adds to one; a chunk does both.
func (t *Thread) text(o Other) error {
	members := split(o.JSON)
	member := func(name string) string {
		text, _ := unquote(members[name])
		return text
	}
	isReasoning := strings.HasPrefix(string(o.Type), "REASONING")
	id, lane, delta := member("messageId"), member("subagentRunId"), member("delta")
	isTagged := lane != ""
	if isReasoning {
		lane = "reasoning " + lane
	}
	e := t.byID[id]
	switch {
	case e == nil && id == "":
		if e = t.lanes[lane]; e == nil && !isTagged {
			e = t.lanes[string(o.Type)] // the only one that is open
		}
		if e == nil {
			return nil
		}
	case e == nil:
		if err := t.grow(entrySize + len(id)); err != nil {
			return err
		}
		e = t.push(opened(member, isReasoning))
	}
	if strings.HasSuffix(string(o.Type), "_CHUNK") {
		t.lanes[lane], t.lanes[string(o.Type)] = e, e
	}
	e.said = true
	e.text.WriteString(delta)
	return t.grow(len(delta))
}

// opened makes the message that an event with these members opens.
func opened(member func(string) string, isReasoning bool) Message {
	base := MessageBase{ID: member("messageId"), SubagentRunID: member("subagentRunId")}
	if isReasoning {
		return ReasoningMessage{MessageBase: base}
	}
	name := member("name")
	switch Role(member("role")) {
	case RoleUser:
		return UserMessage{MessageBase: base, Name: name}
	case RoleSystem:
		return SystemMessage{MessageBase: base, Name: name}
	case RoleDeveloper:
		return DeveloperMessage{MessageBase: base, Name: name}
	}
	return AssistantMessage{MessageBase: base, Name: name}
}

// encrypted stores a provider's value with what it belongs to.
func (t *Thread) encrypted(o Other) error {
	id, value := o.member("entityId"), o.member("encryptedValue")
	if o.member("subtype") == "tool-call" {
		if c := t.calls[id]; c != nil {
			c.call.EncryptedValue = value
		}
		return t.grow(len(value))
	}
	if e := t.byID[id]; e != nil {
		switch m := e.m.(type) {
		case AssistantMessage:
			m.EncryptedValue = value
			e.m = m
		case ReasoningMessage:
			m.EncryptedValue = value
			e.m = m
		}
	}
	return t.grow(len(value))
}

// snapshot makes the thread what a MESSAGES_SNAPSHOT declares. It drops what
// is not in it but for reasoning, which stays behind the message it followed.
func (t *Thread) snapshot(o Other) ([]Warning, error) {
	r := reader{typ: o.Type}
	members := split(o.JSON)
	if !isListOfObjects(members["messages"]) {
		r.malformed("messages", "expected a list of objects")
		return nil, r.err
	}
	declared := r.messages("messages", members["messages"])
	if r.err != nil {
		return r.warnings, r.err
	}
	is := map[string]bool{}
	for _, m := range declared {
		is[m.MessageID()] = true
	}
	var (
		follows = map[string][]Message{} // by the id of what it follows
		before  string
	)
	for _, m := range t.Messages() {
		switch {
		case is[m.MessageID()]:
			before = m.MessageID()
		case m.MessageRole() == RoleReasoning:
			follows[before] = append(follows[before], m)
		}
	}
	all := follows[""]
	for _, m := range declared {
		all = append(append(all, m), follows[m.MessageID()]...)
	}
	t.reset(all)
	return r.warnings, t.grow(len(o.JSON))
}

func (t *Thread) patch(o Other) ([]Warning, error) {
	var members struct {
		Delta []PatchOp `json:"delta"`
	}
	err := json.Unmarshal(o.JSON, &members)
	if err == nil {
		state := t.state
		if state == nil {
			state = json.RawMessage("{}")
		}
		if t.patched += len(state); t.patched > maxPatched {
			return nil, fmt.Errorf("agui: the patches of a large state are too many: %d bytes of state were patched", t.patched)
		}
		if state, err = ApplyPatch(state, members.Delta); err == nil {
			if t.state = state; string(state) == "null" {
				t.state = nil // an input has no state that is null
			}
		}
	}
	if err != nil {
		return []Warning{{Type: o.Type, Field: "delta", Message: "the patch was skipped: " + err.Error()}}, nil
	}
	return nil, nil
}
