package agui

import "slices"

// Expander turns TOOL_CALL_CHUNK events into the START, ARGS and END that they
// stand for, and passes all others on. Chunks of messages pass too, and are
// followed, because they share the lanes: a lane, which is a subagent or the
// parent, has one open stream. The zero value is ready. After an error the
// expander is spent. It is not safe for concurrent use.
type Expander struct {
	n    int
	open map[string]opener // by lane
}

// opener is the first chunk of the stream that is open in a lane. A message
// has no name and no parent.
type opener struct {
	kind             EventType
	id, name, parent string
}

// maxLanes bounds the streams that are open at once.
const maxLanes = 1000

// passing are the types of events that leave open streams alone: they may stand
// between the chunks of one call.
var passing = []EventType{TypeActivitySnapshot, TypeActivityDelta, "RAW", "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED"}

// Expand returns what stands for e: the ends of the streams that e closes, then
// e or what a chunk means.
func (x *Expander) Expand(e Event) ([]Event, error) {
	x.n++
	if x.open == nil {
		x.open = map[string]opener{}
	}
	switch e := e.(type) {
	case ToolCallChunk:
		return x.chunk(e)
	case RunStarted, RunFinished, RunError:
		return append(x.closeAll(), e), nil
	case ToolCallStart:
		return append(x.closeFor(e.SubagentRunID, e.ToolCallID), e), nil
	case ToolCallArgs:
		return append(x.closeFor(e.SubagentRunID, e.ToolCallID), e), nil
	case ToolCallEnd:
		return append(x.closeFor(e.SubagentRunID, e.ToolCallID), e), nil
	case ToolCallResult:
		return append(x.closeFor(e.SubagentRunID, e.ToolCallID), e), nil
	case Custom:
		return append(x.close(e.SubagentRunID), e), nil
	case Other:
		switch {
		case e.Type == "TEXT_MESSAGE_CHUNK", e.Type == "REASONING_MESSAGE_CHUNK":
			return x.messageChunk(e)
		case e.Type == "MESSAGES_SNAPSHOT":
			return append(x.closeAll(), e), nil
		case !slices.Contains(passing, e.Type):
			return append(x.close(e.subagent()), e), nil
		}
	}
	return []Event{e}, nil
}

// chunk opens a stream or goes on with one.
func (x *Expander) chunk(c ToolCallChunk) ([]Event, error) {
	lane, found, reason := x.find(TypeToolCallChunk, deref(c.ToolCallID), c.SubagentRunID)
	switch {
	case reason != "":
	case found:
		reason = x.open[lane].conflict(c)
	case c.ToolCallID == nil:
		reason = "the first chunk of a call must have a toolCallId"
	case c.ToolCallName == nil:
		reason = "the first chunk of a call must have a toolCallName"
	}
	if reason != "" {
		return nil, &SequenceError{x.n, TypeToolCallChunk, reason}
	}
	if found {
		return []Event{c.args(x.open[lane].id, c.Metadata)}, nil
	}
	first := opener{kind: TypeToolCallChunk, id: *c.ToolCallID, name: *c.ToolCallName, parent: deref(c.ParentMessageID)}
	out := append(x.close(lane), ToolCallStart{
		Base:       Base{Metadata: c.Metadata, SubagentRunID: c.SubagentRunID},
		ToolCallID: first.id, ToolCallName: first.name, ParentMessageID: first.parent,
	})
	x.open[lane] = first
	if c.Delta != nil || c.RawEvent != nil {
		out = append(out, c.args(first.id, nil))
	}
	return out, nil
}

// messageChunk passes a chunk of a message on, behind the end of a call that it
// closes.
func (x *Expander) messageChunk(e Other) ([]Event, error) {
	id := e.member("messageId")
	lane, found, reason := x.find(e.Type, id, e.subagent())
	if reason == "" && !found && id == "" {
		reason = "the first chunk of a message must have a messageId"
	}
	if reason != "" {
		return nil, &SequenceError{x.n, e.Type, reason}
	}
	if found {
		return []Event{e}, nil
	}
	out := append(x.close(lane), e)
	x.open[lane] = opener{kind: e.Type, id: id}
	return out, nil
}

// args is what a chunk adds to the arguments of its call. The time of a chunk
// is not that of the events it stands for.
func (c ToolCallChunk) args(id string, m Metadata) ToolCallArgs {
	return ToolCallArgs{
		Base:       Base{RawEvent: c.RawEvent, Metadata: m, SubagentRunID: c.SubagentRunID},
		ToolCallID: id, Delta: deref(c.Delta),
	}
}

// find tells the lane of a chunk, and whether the chunk goes on with the stream
// that is open there. An empty id is none.
func (x *Expander) find(kind EventType, id, tag string) (lane string, found bool, reason string) {
	if id != "" {
		lane, found = x.holder(kind, id)
		switch {
		case found && tag != "" && tag != lane:
			return "", false, "the subagentRunId is not that of the first chunk"
		case !found && x.open[tag].kind == "" && len(x.open) >= maxLanes:
			return "", false, "too many chunked calls and messages are open"
		case !found:
			return tag, false, ""
		}
		return lane, true, ""
	}
	// Without an id it goes on with what is open: in its own lane, else, when
	// it has no tag, in the only one there is.
	if found = x.open[tag].kind == kind; found || tag != "" {
		return tag, found, ""
	}
	for l, o := range x.open {
		switch {
		case o.kind != kind:
		case found:
			return "", false, "the chunk has no id and several streams are open that it may belong to"
		default:
			lane, found = l, true
		}
	}
	return lane, found, ""
}

// conflict says which member of a chunk differs from the first one's.
func (o opener) conflict(c ToolCallChunk) string {
	switch {
	case c.ToolCallName != nil && *c.ToolCallName != o.name:
		return "the toolCallName is not that of the call's first chunk"
	case c.ParentMessageID != nil && *c.ParentMessageID != o.parent:
		return "the parentMessageId is not that of the call's first chunk"
	}
	return ""
}

// holder finds the lane in which something is open by chunks.
func (x *Expander) holder(kind EventType, id string) (lane string, found bool) {
	for lane, o := range x.open {
		if o.kind == kind && o.id == id {
			return lane, true
		}
	}
	return "", false
}

// closeFor ends the stream in the event's lane, and that of the call that the
// event names: the two spellings do not mix within one call.
func (x *Expander) closeFor(lane, toolCallID string) []Event {
	out := x.close(lane)
	if held, found := x.holder(TypeToolCallChunk, toolCallID); found {
		out = append(out, x.close(held)...)
	}
	return out
}

// close ends the stream that is open in a lane, if one is.
func (x *Expander) close(lane string) []Event {
	o, found := x.open[lane]
	if !found {
		return nil
	}
	delete(x.open, lane)
	if o.kind != TypeToolCallChunk {
		return nil // who reads the chunks of a message knows its end
	}
	return []Event{ToolCallEnd{Base: Base{SubagentRunID: lane}, ToolCallID: o.id}}
}

func (x *Expander) closeAll() []Event {
	var out []Event
	for _, lane := range sortedKeys(x.open) {
		out = append(out, x.close(lane)...)
	}
	return out
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
