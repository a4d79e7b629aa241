package agui

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// shape is what the protocol says of one type of event.
type shape struct {
	members []member
	decode  func(data []byte) (Event, error)
}

// member is one member that an event may have.
type member struct {
	name     string
	is       kind
	required bool
}

// kind is what a member's value must be. No kind takes null, which the
// protocol never allows for "absent", but for anyJSON.
type kind struct {
	name  string
	check func(json.RawMessage) bool
}

var (
	text     = kind{"a string", isString}
	id       = kind{"a string that is not empty", func(raw json.RawMessage) bool { return isString(raw) && string(raw) != `""` }}
	integer  = kind{"an integer of at most 53 bits", isInteger}
	object   = kind{"an object", func(raw json.RawMessage) bool { return begins(raw, '{') }}
	count    = kind{"a count", func(raw json.RawMessage) bool { return isInteger(raw) && raw[0] != '-' }}
	boolean  = kind{"true or false", func(raw json.RawMessage) bool { return string(raw) == "true" || string(raw) == "false" }}
	notNull  = kind{"any JSON but null", func(raw json.RawMessage) bool { return string(raw) != "null" }}
	anyJSON  = kind{"any JSON", func(json.RawMessage) bool { return true }}
	toolRole = oneOf("tool")
	content  = kind{"a string or a list of parts", func(raw json.RawMessage) bool { return begins(raw, '"') || isListOfObjects(raw) }}
	patch    = kind{"a list of JSON Patch operations", isListOfObjects}
	ids      = kind{"a list of strings", isListOfStrings}
	objects  = kind{"a list of objects", isListOfObjects}
	some     = kind{"a list of at least one interrupt", func(raw json.RawMessage) bool { return isListOfObjects(raw) && string(raw) != "[]" }}

	functionType     = oneOf("function")
	resumeStatus     = oneOf("resolved", "cancelled")
	textRole         = oneOf("assistant", "user", "system", "developer")
	reasoningRole    = oneOf("reasoning")
	encryptedSubtype = oneOf("message", "tool-call")
)

// The members of objects that are one of several, by type.
var (
	outcomes = map[string][]member{
		OutcomeSuccess:   {{"pendingToolCallIds", ids, false}},
		OutcomeInterrupt: {{"interrupts", some, true}},
		OutcomeCancelled: {},
	}
	interruptMembers = []member{
		{"id", id, true},
		{"reason", text, true},
		{"message", text, false},
		{"toolCallId", text, false},
		{"responseSchema", object, false},
		{"expiresAt", text, false},
		{"metadata", object, false},
		{"subagentRunId", text, false},
	}
	usageMembers = []member{
		{"provider", text, false},
		{"model", text, false},
		{"inputTokens", count, false},
		{"outputTokens", count, false},
		{"totalTokens", count, false},
		{"reasoningTokens", count, false},
		{"cachedInputTokens", count, false},
		{"cacheWriteInputTokens", count, false},
	}
	partTypes = map[string][]member{
		PartText:     {{"text", text, true}, {"id", text, false}, {"metadata", notNull, false}},
		PartImage:    media,
		PartAudio:    media,
		PartVideo:    media,
		PartDocument: media,
	}
	media       = []member{{"source", object, true}, {"id", text, false}, {"metadata", notNull, false}}
	sourceTypes = map[string][]member{
		SourceData: {{"value", text, true}, {"mimeType", id, true}},
		SourceURL:  {{"value", text, true}, {"mimeType", text, false}},
		SourceFile: {{"value", text, true}, {"provider", text, false}, {"mimeType", text, false}},
	}
)

// base is what every event may have, and attributed what may be a subagent's.
var (
	base = []member{
		{"timestamp", integer, false},
		{"rawEvent", notNull, false},
		{"metadata", object, false},
	}
	attributed = slices.Concat(base, []member{{"subagentRunId", text, false}})
)

// shapes are the types of events that this package gives a Go type to. This
// table, [relayed] and [messageMembers] are built by whoever first asks: a tool
// links this package for its parts, reads no event, and would spend a tenth of
// its start on them.
var shapes = sync.OnceValue(func() map[EventType]shape {
	return map[EventType]shape{
		TypeRunStarted: of[RunStarted](base,
			member{"threadId", id, true}, member{"runId", id, true}, member{"protocolVersion", text, false},
			member{"parentRunId", text, false}, member{"input", object, false}),
		TypeRunFinished: of[RunFinished](base,
			member{"threadId", id, true}, member{"runId", id, true}, member{"result", notNull, false},
			member{"outcome", object, false}, member{"usage", objects, false}),
		TypeRunError: of[RunError](base,
			member{"message", text, true}, member{"code", text, false}, member{"usage", objects, false}),
		TypeToolCallStart: of[ToolCallStart](attributed,
			member{"toolCallId", id, true}, member{"toolCallName", id, true}, member{"parentMessageId", text, false}),
		TypeToolCallArgs: of[ToolCallArgs](attributed,
			member{"toolCallId", id, true}, member{"delta", text, true}),
		TypeToolCallEnd: of[ToolCallEnd](attributed,
			member{"toolCallId", id, true}),
		TypeToolCallChunk: of[ToolCallChunk](attributed,
			member{"toolCallId", id, false}, member{"toolCallName", id, false},
			member{"parentMessageId", text, false}, member{"delta", text, false}),
		TypeToolCallResult: of[ToolCallResult](attributed,
			member{"messageId", id, true}, member{"toolCallId", id, true},
			member{"content", content, true}, member{"role", toolRole, false}),
		TypeActivitySnapshot: of[ActivitySnapshot](attributed,
			member{"messageId", id, true}, member{"activityType", id, true},
			member{"content", object, true}, member{"replace", boolean, false}),
		TypeActivityDelta: of[ActivityDelta](attributed,
			member{"messageId", id, true}, member{"activityType", id, true}, member{"patch", patch, true}),
		TypeCustom: of[Custom](attributed,
			member{"name", id, true}, member{"value", anyJSON, true}),
	}
})

// relayed are the other types of the protocol, which come as [Other]. Their
// members are checked, since a peer refuses a run for a wrong one, and passed
// on as they came.
var relayed = sync.OnceValue(func() map[EventType][]member {
	return map[EventType][]member{
		"TEXT_MESSAGE_START":   may(member{"messageId", id, true}, member{"role", textRole, false}, member{"name", text, false}),
		"TEXT_MESSAGE_CONTENT": may(member{"messageId", id, true}, member{"delta", text, true}),
		"TEXT_MESSAGE_END":     may(member{"messageId", id, true}),
		"TEXT_MESSAGE_CHUNK": may(member{"messageId", id, false}, member{"role", textRole, false},
			member{"delta", text, false}, member{"name", text, false}),

		"STATE_SNAPSHOT":    may(member{"snapshot", anyJSON, true}),
		"STATE_DELTA":       may(member{"delta", patch, true}),
		"MESSAGES_SNAPSHOT": slices.Concat(base, []member{{"messages", objects, true}}),
		"RAW":               may(member{"event", anyJSON, true}, member{"source", text, false}),
		"STEP_STARTED":      may(member{"stepName", text, true}),
		"STEP_FINISHED":     may(member{"stepName", text, true}),

		"REASONING_START":           may(member{"messageId", id, true}),
		"REASONING_MESSAGE_START":   may(member{"messageId", id, true}, member{"role", reasoningRole, true}),
		"REASONING_MESSAGE_CONTENT": may(member{"messageId", id, true}, member{"delta", text, true}),
		"REASONING_MESSAGE_END":     may(member{"messageId", id, true}),
		"REASONING_MESSAGE_CHUNK":   may(member{"messageId", id, false}, member{"delta", text, false}),
		"REASONING_END":             may(member{"messageId", id, true}),
		"REASONING_ENCRYPTED_VALUE": may(member{"subtype", encryptedSubtype, true}, member{"entityId", id, true}, member{"encryptedValue", text, true}),

		"SUBAGENT_STARTED": slices.Concat(base, []member{
			{"subagentRunId", id, true},
			{"name", text, true},
			{"description", text, false},
			{"parentSubagentRunId", text, false},
			{"parentToolCallId", text, false},
			{"parentMessageId", text, false},
		}),
		"SUBAGENT_FINISHED": slices.Concat(base, []member{{"subagentRunId", id, true}, {"result", notNull, false}, {"outcome", object, false}}),
		"SUBAGENT_ERROR":    slices.Concat(base, []member{{"subagentRunId", id, true}, {"message", text, true}, {"code", text, false}}),
	}
})

// may is what an event may have that can be a subagent's.
func may(own ...member) []member { return slices.Concat(attributed, own) }

// of makes the shape of the events of Go type E.
func of[E Event](common []member, own ...member) shape {
	return shape{
		members: slices.Concat(common, own),
		decode: func(data []byte) (Event, error) {
			var e E
			err := json.Unmarshal(data, &e)
			return e, err
		},
	}
}

// oneOf takes these strings and no others.
func oneOf(values ...string) kind {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v)
	}
	return kind{strings.Join(quoted, " or "), func(raw json.RawMessage) bool { return slices.Contains(quoted, string(raw)) }}
}

// begins reports whether raw, which is valid JSON without space around it,
// begins with c.
func begins(raw json.RawMessage, c byte) bool { return len(raw) > 0 && raw[0] == c }

func isString(raw json.RawMessage) bool { return begins(raw, '"') }

// isInteger takes what JavaScript counts exactly, written without a fraction.
func isInteger(raw json.RawMessage) bool {
	const most = 1<<53 - 1
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return err == nil && n >= -most && n <= most
}

func isListOfObjects(raw json.RawMessage) bool { return isListOf(raw, '{') }

func isListOfStrings(raw json.RawMessage) bool { return isListOf(raw, '"') }

func isListOf(raw json.RawMessage, first byte) bool {
	var items []json.RawMessage
	if !begins(raw, '[') || json.Unmarshal(raw, &items) != nil {
		return false
	}
	return !slices.ContainsFunc(items, func(item json.RawMessage) bool { return !begins(item, first) })
}

// check says what is wrong with an operation, or nothing.
func (o PatchOp) check() string {
	if o.Path != "" && !strings.HasPrefix(o.Path, "/") {
		return "the path is not a JSON pointer"
	}
	switch o.Op {
	case "add", "replace", "test":
		if len(bytes.TrimSpace(o.Value)) == 0 {
			return "a value is missing"
		}
	case "remove":
	case "move", "copy":
		if o.From != "" && !strings.HasPrefix(o.From, "/") {
			return "from is not a JSON pointer"
		}
	default:
		return "the operation is not one of RFC 6902"
	}
	return ""
}
