package agui

import (
	"slices"
	"strings"
)

// maxTracked bounds what a verifier remembers of one stream, so that a peer
// that never closes anything cannot fill the memory.
const maxTracked = 100_000

// SequenceError says that an event may not stand where it stands.
type SequenceError struct {
	// N is the number of the event in its stream, from 1.
	N int
	// Type is the event's type, or "" for the end of the stream.
	Type EventType
	// Message says which rule was broken.
	Message string
}

// Error implements error.
func (e *SequenceError) Error() string {
	if e.Type == "" {
		return "agui: end of stream: " + e.Message
	}
	return "agui: " + where(e.N, e.Type, "") + e.Message
}

// Verifier checks the order of a stream's events. It holds what the protocol
// says, where the official client does not look: each call is answered once,
// after its end, by a message of its own; the list of pending calls is exact;
// a run ends with its own ids; a stream ends with a terminal event. Chunks
// must be expanded before.
//
// The zero value is ready. After an error the verifier is spent. It is not
// safe for concurrent use.
type Verifier struct {
	n    int
	run  runState
	ids  runIDs
	runs map[runIDs]bool

	// Of the whole stream, across runs:
	calls      map[string]*callState
	messages   map[string]string // id of a message → subagent that owns it
	activities map[string]activity

	// Of the open run:
	started []string        // calls started, in order, once each
	open    map[item]string // → its subagent
}

// item is something of another kind than a call that must be closed before its
// run is.
type item struct{ what, name, owner string }

// activity is what an ACTIVITY_SNAPSHOT opened.
type activity struct{ activityType, subagent string }

type runState int

const (
	runNone     runState = iota // none has begun
	runOpen                     // one is going on
	runFinished                 // the last one finished
	runFailed                   // the last one ended with RUN_ERROR
)

type runIDs struct{ thread, run string }

// callState is one call of the stream.
type callState struct {
	name, parent, subagent string
	open, answered         bool
	// run is the last run that started it.
	run runIDs
}

// Seed tells the verifier what a run's input holds: the calls that may be
// answered without having been started in the stream, those that were answered
// already, and the ids that are taken. It comes before the first Check.
func (v *Verifier) Seed(messages []Message) {
	v.init()
	for _, m := range messages {
		switch m := m.(type) {
		case AssistantMessage:
			v.messages[m.ID] = m.SubagentRunID
			for _, c := range m.ToolCalls {
				if had := v.calls[c.ID]; had == nil || had.answered {
					v.calls[c.ID] = &callState{name: c.Name, parent: m.ID, subagent: m.SubagentRunID}
				}
			}
		case ToolMessage:
			v.messages[m.ID] = m.SubagentRunID
			if c := v.calls[m.ToolCallID]; c != nil {
				c.answered = true
			}
		case ActivityMessage:
			v.activities[m.ID] = activity{m.ActivityType, m.SubagentRunID}
		default:
			v.messages[m.MessageID()] = ""
		}
	}
}

func (v *Verifier) init() {
	if v.calls == nil {
		v.calls, v.runs = map[string]*callState{}, map[runIDs]bool{}
		v.messages, v.activities = map[string]string{}, map[string]activity{}
	}
}

// Check takes the next event.
func (v *Verifier) Check(e Event) error {
	v.n++
	v.init()
	reason := v.place(e)
	if reason == "" {
		reason = v.rule(e)
	}
	if reason == "" && len(v.calls)+len(v.messages)+len(v.activities)+len(v.open)+len(v.runs) > maxTracked {
		reason = "the stream holds too many calls and messages"
	}
	if reason != "" {
		return &SequenceError{v.n, e.EventType(), reason}
	}
	return nil
}

// End takes the end of the stream, which is only sound after a run's own end.
func (v *Verifier) End() error {
	switch v.run {
	case runNone:
		return &SequenceError{N: v.n, Message: "no run has begun"}
	case runOpen:
		return &SequenceError{N: v.n, Message: "the run " + clip(v.ids.run) + " has no end: the stream was cut"}
	}
	return nil
}

// Pending returns the calls started and not answered in the last run, in the
// order of their starts. They are derived: the peer's own list may be absent.
func (v *Verifier) Pending() []string {
	var ids []string
	for _, id := range v.started {
		if !v.calls[id].answered {
			ids = append(ids, id)
		}
	}
	return ids
}

// place checks that the event may come in this state of the run.
func (v *Verifier) place(e Event) string {
	t := e.EventType()
	switch v.run {
	case runNone:
		if t != TypeRunStarted && t != TypeRunError {
			return "the first event must be RUN_STARTED or RUN_ERROR"
		}
	case runOpen:
		if t == TypeRunStarted {
			return "a run is still going on"
		}
	case runFinished:
		if t != TypeRunStarted && t != TypeRunError {
			return "the run has finished already"
		}
	case runFailed:
		if t != TypeRunStarted {
			return "the run has ended with RUN_ERROR already"
		}
	}
	return ""
}

// rule applies the rule of the event's type, and returns what it breaks.
func (v *Verifier) rule(e Event) string {
	switch e := e.(type) {
	case RunStarted:
		return v.runStarted(e)
	case RunFinished:
		return v.runFinished(e)
	case RunError:
		v.run, v.open = runFailed, nil
		for _, id := range v.started {
			v.calls[id].open = false
		}
	case ToolCallStart:
		return v.start(e)
	case ToolCallArgs:
		return v.continues(e.ToolCallID, e.SubagentRunID)
	case ToolCallEnd:
		if reason := v.continues(e.ToolCallID, e.SubagentRunID); reason != "" {
			return reason
		}
		v.calls[e.ToolCallID].open = false
	case ToolCallChunk:
		return "chunks must be expanded first"
	case ToolCallResult:
		return v.result(e)
	case ActivitySnapshot:
		return v.snapshot(e)
	case ActivityDelta:
		return v.delta(e)
	case Other:
		return v.other(e)
	}
	return ""
}

func (v *Verifier) runStarted(e RunStarted) string {
	ids := runIDs{e.ThreadID, e.RunID}
	if v.runs[ids] {
		return "the runId was used on this thread before"
	}
	v.runs[ids] = true
	v.run, v.ids, v.started, v.open = runOpen, ids, nil, map[item]string{}
	return ""
}

func (v *Verifier) runFinished(e RunFinished) string {
	if (runIDs{e.ThreadID, e.RunID}) != v.ids {
		return "the ids are not those of the run"
	}
	var open []string
	for _, id := range v.started {
		if v.calls[id].open {
			open = append(open, "tool call "+clip(id))
		}
	}
	for i := range v.open {
		open = append(open, i.what+" "+clip(i.name))
	}
	slices.Sort(open)
	if len(open) > 0 {
		return "still open: " + strings.Join(open[:min(len(open), 10)], ", ")
	}
	if o := e.Outcome; o != nil && len(o.PendingToolCallIDs) > 0 && !slices.Equal(o.PendingToolCallIDs, v.Pending()) {
		return "pendingToolCallIds is not the list of calls started and not answered in this run"
	}
	v.run = runFinished
	return ""
}

func (v *Verifier) start(e ToolCallStart) string {
	c := v.calls[e.ToolCallID]
	owner, owned := v.messages[carrier(e.ParentMessageID, e.ToolCallID)]
	switch {
	case c == nil && owned && owner != e.SubagentRunID:
		return "the call belongs to another subagent than the message that carries it"
	case c == nil:
		v.calls[e.ToolCallID] = &callState{name: e.ToolCallName, parent: e.ParentMessageID, subagent: e.SubagentRunID, open: true}
	case c.open:
		return "the call is open already"
	case c.answered:
		return "the call was answered already"
	case c.name != e.ToolCallName:
		return "the call is opened again under another toolCallName"
	case carrier(c.parent, e.ToolCallID) != carrier(e.ParentMessageID, e.ToolCallID):
		return "the call is opened again under another parentMessageId"
	case c.subagent != e.SubagentRunID:
		return "the call is opened again under another subagentRunId"
	default:
		c.open = true
	}
	if c = v.calls[e.ToolCallID]; c.run != v.ids {
		c.run = v.ids
		v.started = append(v.started, e.ToolCallID)
	}
	// The call makes its message where there is none yet.
	v.messages[carrier(e.ParentMessageID, e.ToolCallID)] = e.SubagentRunID
	return ""
}

// carrier is the id of the message that carries a call: the parent, or the one
// that a client makes where there is none, whose id is the call's.
func carrier(parent, toolCallID string) string {
	if parent == "" {
		return toolCallID
	}
	return parent
}

// continues checks an event of an open call. One without a tag always agrees.
func (v *Verifier) continues(toolCallID, subagent string) string {
	c := v.calls[toolCallID]
	switch {
	case c == nil || !c.open:
		return "the call is not open"
	case subagent != "" && subagent != c.subagent:
		return "the subagentRunId is not that of the call's start"
	}
	return ""
}

func (v *Verifier) result(e ToolCallResult) string {
	c := v.calls[e.ToolCallID]
	_, used := v.messages[e.MessageID]
	_, isActivity := v.activities[e.MessageID]
	_, isCall := v.calls[e.MessageID]
	switch {
	case c == nil:
		return "the result answers a call that was never started"
	case c.open:
		return "the result comes before the call's end"
	case c.answered:
		return "the call has a result already"
	case isCall:
		return "the messageId is that of a call"
	case used, isActivity:
		return "the messageId was used before"
	}
	c.answered = true
	v.messages[e.MessageID] = e.SubagentRunID
	return ""
}

func (v *Verifier) snapshot(e ActivitySnapshot) string {
	if _, used := v.messages[e.MessageID]; used {
		return "the messageId is that of another message"
	}
	a, known := v.activities[e.MessageID]
	if known && e.SubagentRunID != "" && e.SubagentRunID != a.subagent {
		return "the subagentRunId is not that of the activity's first snapshot"
	}
	if !known {
		a.subagent = e.SubagentRunID
	}
	a.activityType = e.ActivityType
	v.activities[e.MessageID] = a
	return ""
}

func (v *Verifier) delta(e ActivityDelta) string {
	switch a, known := v.activities[e.MessageID]; {
	case !known:
		return "no snapshot of this activity came before"
	case a.activityType != e.ActivityType:
		return "the activityType is not that of the snapshot"
	case e.SubagentRunID != "" && e.SubagentRunID != a.subagent:
		return "the subagentRunId is not that of the activity's first snapshot"
	}
	return ""
}

// pairs are the relayed events that open and close something, and the member
// that names it.
var pairs = map[EventType]struct {
	what, member string
	opens        bool
	closes       bool
}{
	"TEXT_MESSAGE_START":        {"text message", "messageId", true, false},
	"TEXT_MESSAGE_CONTENT":      {"text message", "messageId", false, false},
	"TEXT_MESSAGE_END":          {"text message", "messageId", false, true},
	"REASONING_START":           {"reasoning", "messageId", true, false},
	"REASONING_END":             {"reasoning", "messageId", false, true},
	"REASONING_MESSAGE_START":   {"reasoning message", "messageId", true, false},
	"REASONING_MESSAGE_CONTENT": {"reasoning message", "messageId", false, false},
	"REASONING_MESSAGE_END":     {"reasoning message", "messageId", false, true},
	"STEP_STARTED":              {"step", "stepName", true, false},
	"STEP_FINISHED":             {"step", "stepName", false, true},
	"SUBAGENT_STARTED":          {"subagent", "subagentRunId", true, false},
	"SUBAGENT_FINISHED":         {"subagent", "subagentRunId", false, true},
	"SUBAGENT_ERROR":            {"subagent", "subagentRunId", false, true},
}

// other balances what the fleet only relays: a run may not finish around it.
func (v *Verifier) other(e Other) string {
	switch e.Type {
	case "MESSAGES_SNAPSHOT":
		return v.restated(e)
	case "REASONING_ENCRYPTED_VALUE":
		return v.encrypted(e)
	}
	pair, ok := pairs[e.Type]
	if !ok {
		return ""
	}
	members := split(e.JSON)
	name, ok := unquote(members[pair.member])
	if !ok {
		return "the " + pair.member + " is missing"
	}
	subagent, _ := unquote(members["subagentRunId"])
	key := item{what: pair.what, name: name}
	if pair.what == "step" {
		key.owner = subagent // steps balance for each owner
	}
	owner, isOpen := v.open[key]
	switch {
	case pair.opens && isOpen:
		return "the " + pair.what + " is open already"
	case pair.opens:
		v.open[key] = subagent
	case !isOpen:
		return "the " + pair.what + " is not open"
	case subagent != "" && subagent != owner:
		return "the subagentRunId is not that of the " + pair.what + "'s start"
	case pair.closes:
		delete(v.open, key)
	}
	switch e.Type {
	case "TEXT_MESSAGE_START", "REASONING_START", "REASONING_MESSAGE_START":
		v.messages[name] = subagent
	}
	return ""
}

// encrypted checks a value that belongs to a call or a message, open or not.
func (v *Verifier) encrypted(e Other) string {
	id, subagent := e.member("entityId"), e.subagent()
	owner, known := v.messages[id]
	if e.member("subtype") == "tool-call" {
		var c *callState
		if c, known = v.calls[id]; known {
			owner = c.subagent
		}
	}
	if known && subagent != "" && subagent != owner {
		return "the subagentRunId is not that of what the value belongs to"
	}
	return ""
}

// restated learns from a MESSAGES_SNAPSHOT whose messages are whose, and of
// calls that the stream has not shown. It answers nothing: a call of this run
// is pending until its TOOL_CALL_RESULT.
func (v *Verifier) restated(e Other) string {
	r := reader{typ: e.Type}
	members := split(e.JSON)
	if !isListOfObjects(members["messages"]) {
		return "messages is not a list of objects"
	}
	messages := r.messages("messages", members["messages"])
	if r.err != nil {
		return r.err.Field + " " + r.err.Message
	}
	restated := map[string]bool{}
	for _, m := range messages {
		a, ok := m.(AssistantMessage)
		if !ok {
			continue
		}
		v.messages[a.ID] = a.SubagentRunID
		for _, c := range a.ToolCalls {
			restated[c.ID] = true
			if v.calls[c.ID] == nil {
				v.calls[c.ID] = &callState{name: c.Name, parent: a.ID, subagent: a.SubagentRunID}
			}
		}
	}
	for _, id := range v.started {
		if v.calls[id].open && !restated[id] {
			return "messages leaves out a call that is open"
		}
	}
	for _, m := range messages {
		if m, ok := m.(ToolMessage); ok {
			if c := v.calls[m.ToolCallID]; c != nil && c.run == (runIDs{}) {
				c.answered = true
			}
		}
	}
	return ""
}
