package agui

import (
	"encoding/json"
	"fmt"
)

// ProtocolVersion is the AG-UI version this package speaks and declares in
// RUN_STARTED. A peer that declares 1.1 makes the 1.0 client warn, and 1.1
// adds nothing to tool calls.
const ProtocolVersion = "1.0"

// EventType is the value of an event's "type" member.
type EventType string

// The event types this package gives a Go type to. The protocol has 31; the
// others travel as [Other].
const (
	TypeRunStarted       EventType = "RUN_STARTED"
	TypeRunFinished      EventType = "RUN_FINISHED"
	TypeRunError         EventType = "RUN_ERROR"
	TypeToolCallStart    EventType = "TOOL_CALL_START"
	TypeToolCallArgs     EventType = "TOOL_CALL_ARGS"
	TypeToolCallEnd      EventType = "TOOL_CALL_END"
	TypeToolCallChunk    EventType = "TOOL_CALL_CHUNK"
	TypeToolCallResult   EventType = "TOOL_CALL_RESULT"
	TypeActivitySnapshot EventType = "ACTIVITY_SNAPSHOT"
	TypeActivityDelta    EventType = "ACTIVITY_DELTA"
	TypeCustom           EventType = "CUSTOM"
)

// Event is one AG-UI event. The concrete types are values, not pointers:
// [RunStarted], [RunFinished], [RunError], [ToolCallStart], [ToolCallArgs],
// [ToolCallEnd], [ToolCallChunk], [ToolCallResult], [ActivitySnapshot],
// [ActivityDelta], [Custom] and [Other]. Encode one with [Encode].
type Event interface {
	EventType() EventType
}

// Metadata is an event's open map. Values are kept as raw JSON; keys of ours
// begin "toolfleet.". A nil map is absent on the wire.
type Metadata map[string]json.RawMessage

// Set stores v under key as JSON, making the map when it is nil, and returns
// the map. It panics when v cannot be encoded, which is a fault of the caller.
func (m Metadata) Set(key string, v any) Metadata {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("agui: metadata %q: %v", key, err))
	}
	if m == nil {
		m = Metadata{}
	}
	m[key] = raw
	return m
}

// Get decodes the value under key into v. It reports false when the key is
// absent and an error when the value does not fit v.
func (m Metadata) Get(key string, v any) (bool, error) {
	raw, ok := m[key]
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return true, fmt.Errorf("agui: metadata %q: %w", key, err)
	}
	return true, nil
}

// Base holds the members that every event may carry.
type Base struct {
	// Timestamp is in milliseconds since the epoch; informational, never for
	// ordering. Nil is absent.
	Timestamp *int64 `json:"timestamp,omitempty"`
	// RawEvent is provenance; no behaviour may be derived from it.
	RawEvent json.RawMessage `json:"rawEvent,omitempty"`
	// Metadata is open by key; nil is absent.
	Metadata Metadata `json:"metadata,omitempty"`
	// SubagentRunID attributes the event to a subagent. Not allowed on run
	// events; empty is absent.
	SubagentRunID string `json:"subagentRunId,omitempty"`
}

// RunStarted opens a run.
type RunStarted struct {
	Base
	ThreadID        string          `json:"threadId"`
	RunID           string          `json:"runId"`
	ProtocolVersion string          `json:"protocolVersion,omitempty"`
	ParentRunID     string          `json:"parentRunId,omitempty"`
	Input           json.RawMessage `json:"input,omitempty"`
}

// The types of an [Outcome].
const (
	OutcomeSuccess   = "success"
	OutcomeInterrupt = "interrupt"
	OutcomeCancelled = "cancelled"
)

// Outcome says how a run ended; a nil *Outcome on RunFinished reads as
// success.
type Outcome struct {
	// Type is one of the Outcome constants.
	Type string `json:"type"`
	// PendingToolCallIDs lists the calls started and not answered in this
	// run; only with success.
	PendingToolCallIDs []string `json:"pendingToolCallIds,omitempty"`
	// Interrupts is what the run waits for; only with interrupt, at least one.
	Interrupts []Interrupt `json:"interrupts,omitempty"`
}

// RunFinished closes a run.
type RunFinished struct {
	Base
	ThreadID string          `json:"threadId"`
	RunID    string          `json:"runId"`
	Result   json.RawMessage `json:"result,omitempty"`
	Outcome  *Outcome        `json:"outcome,omitempty"`
	Usage    []TokenUsage    `json:"usage,omitempty"`
}

// TokenUsage counts the tokens of one model; nil is absent. The totals are of
// input and output, all other counts are parts of one of them.
type TokenUsage struct {
	Provider              string `json:"provider,omitempty"`
	Model                 string `json:"model,omitempty"`
	InputTokens           *int64 `json:"inputTokens,omitempty"`
	OutputTokens          *int64 `json:"outputTokens,omitempty"`
	TotalTokens           *int64 `json:"totalTokens,omitempty"`
	ReasoningTokens       *int64 `json:"reasoningTokens,omitempty"`
	CachedInputTokens     *int64 `json:"cachedInputTokens,omitempty"`
	CacheWriteInputTokens *int64 `json:"cacheWriteInputTokens,omitempty"`
}

// RunError ends a run that failed as a run. A failing tool is never one.
type RunError struct {
	Base
	Message string       `json:"message"`
	Code    string       `json:"code,omitempty"`
	Usage   []TokenUsage `json:"usage,omitempty"`
}

// ToolCallStart opens the generation of a call's arguments.
type ToolCallStart struct {
	Base
	ToolCallID      string `json:"toolCallId"`
	ToolCallName    string `json:"toolCallName"`
	ParentMessageID string `json:"parentMessageId,omitempty"`
}

// ToolCallArgs carries the next piece of the arguments' text; Delta may be
// empty.
type ToolCallArgs struct {
	Base
	ToolCallID string `json:"toolCallId"`
	Delta      string `json:"delta"`
}

// ToolCallEnd says that the arguments are complete; nothing may act on a call
// before it.
type ToolCallEnd struct {
	Base
	ToolCallID string `json:"toolCallId"`
}

// ToolCallChunk is the short spelling of start, args and end. Nil is absent.
type ToolCallChunk struct {
	Base
	ToolCallID      *string `json:"toolCallId,omitempty"`
	ToolCallName    *string `json:"toolCallName,omitempty"`
	ParentMessageID *string `json:"parentMessageId,omitempty"`
	Delta           *string `json:"delta,omitempty"`
}

// ToolCallResult answers a call. The protocol has no error member here: an
// error result says so in Content and in Metadata.
type ToolCallResult struct {
	Base
	MessageID  string  `json:"messageId"`
	ToolCallID string  `json:"toolCallId"`
	Content    Content `json:"content"`
	// Role is "tool" or absent.
	Role string `json:"role,omitempty"`
}

// ActivitySnapshot shows the whole progress of something; a nil Replace means
// true.
type ActivitySnapshot struct {
	Base
	MessageID    string          `json:"messageId"`
	ActivityType string          `json:"activityType"`
	Content      json.RawMessage `json:"content"`
	Replace      *bool           `json:"replace,omitempty"`
}

// ActivityDelta changes an activity by an RFC 6902 patch.
type ActivityDelta struct {
	Base
	MessageID    string    `json:"messageId"`
	ActivityType string    `json:"activityType"`
	Patch        []PatchOp `json:"patch"`
}

// PatchOp is one RFC 6902 operation. The fleet emits "add" only, which also
// replaces.
type PatchOp struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Custom carries what no standard event is for. Value is required by the
// protocol and may be null.
type Custom struct {
	Base
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

// Other is an event whose type this package only relays; JSON is the whole
// object, byte for byte.
type Other struct {
	Type EventType
	JSON json.RawMessage
}

// EventType implements [Event].
func (RunStarted) EventType() EventType { return TypeRunStarted }

// EventType implements [Event].
func (RunFinished) EventType() EventType { return TypeRunFinished }

// EventType implements [Event].
func (RunError) EventType() EventType { return TypeRunError }

// EventType implements [Event].
func (ToolCallStart) EventType() EventType { return TypeToolCallStart }

// EventType implements [Event].
func (ToolCallArgs) EventType() EventType { return TypeToolCallArgs }

// EventType implements [Event].
func (ToolCallEnd) EventType() EventType { return TypeToolCallEnd }

// EventType implements [Event].
func (ToolCallChunk) EventType() EventType { return TypeToolCallChunk }

// EventType implements [Event].
func (ToolCallResult) EventType() EventType { return TypeToolCallResult }

// EventType implements [Event].
func (ActivitySnapshot) EventType() EventType { return TypeActivitySnapshot }

// EventType implements [Event].
func (ActivityDelta) EventType() EventType { return TypeActivityDelta }

// EventType implements [Event].
func (Custom) EventType() EventType { return TypeCustom }

// EventType implements [Event].
func (o Other) EventType() EventType { return o.Type }

// subagent is the event's attribution, or "".
func (o Other) subagent() string { return o.member("subagentRunId") }

// member is the text of one of the event's members, or "".
func (o Other) member(name string) string {
	text, _ := unquote(split(o.JSON)[name])
	return text
}

// Encode writes e as one JSON object with its "type" member first; one that
// was only relayed, byte for byte. It fails when e is no event of the protocol:
// its type or that of a part in it is unknown, or raw JSON in it is not JSON.
func Encode(e Event) ([]byte, error) {
	if o, ok := e.(Other); ok {
		_, known := relayed()[o.Type]
		switch {
		case !known:
			return nil, fmt.Errorf("agui: encode %s: not a type to be relayed", clip(string(o.Type)))
		case !json.Valid(o.JSON):
			return nil, fmt.Errorf("agui: encode %s: not JSON", o.Type)
		}
		return o.JSON, nil
	}
	body, err := lead("type", string(e.EventType()), e)
	if err != nil {
		return nil, fmt.Errorf("agui: encode %s: %w", e.EventType(), err)
	}
	return body, nil
}

// lead encodes v, an object, with one more member before the others. The value
// is a name that needs no escapes.
func lead(member, value string, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	head := `{"` + member + `":"` + value + `"`
	if len(body) > len("{}") {
		head += ","
	}
	return append([]byte(head), body[1:]...), nil
}
