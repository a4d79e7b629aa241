package agui

import "slices"

// Expander turns TOOL_CALL_CHUNK events into the START, ARGS and END that they
// stand for, and passes all others on. It keeps one open stream a lane; a lane
// is a subagent, or the parent. The zero value is ready. After an error the
// expander is spent. It is not safe for concurrent use.
type Expander struct {
	n    int
	open map[string]opener // by lane
}

// opener is the first chunk of the stream that is open in a lane.
type opener struct{ id, name, parent string }

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
		if e.Type == "MESSAGES_SNAPSHOT" {
			return append(x.closeAll(), e), nil
		}
		if !slices.Contains(passing, e.Type) {
			return append(x.close(e.subagent()), e), nil
		}
	}
	return []Event{e}, nil
}

// chunk opens a stream or goes on with one.
func (x *Expander) chunk(c ToolCallChunk) ([]Event, error) {
	lane, found, reason := x.find(c)
	if reason == "" && found {
		reason = x.open[lane].conflict(c)
	}
	if reason == "" && !found {
		switch {
		case c.ToolCallID == nil:
			reason = "the first chunk of a call must have a toolCallId"
		case c.ToolCallName == nil:
			reason = "the first chunk of a call must have a toolCallName"
		case len(x.open) >= maxLanes:
			reason = "too many calls are open"
		}
	}
	if reason != "" {
		return nil, &SequenceError{x.n, TypeToolCallChunk, reason}
	}
	if found {
		return []Event{c.args(x.open[lane].id, c.Metadata)}, nil
	}
	out := x.close(lane)
	first := opener{id: *c.ToolCallID, name: *c.ToolCallName, parent: deref(c.ParentMessageID)}
	x.open[lane] = first
	out = append(out, ToolCallStart{
		Base:       Base{Metadata: c.Metadata, SubagentRunID: c.SubagentRunID},
		ToolCallID: first.id, ToolCallName: first.name, ParentMessageID: first.parent,
	})
	if c.Delta != nil || c.RawEvent != nil {
		out = append(out, c.args(first.id, nil))
	}
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
// that is open there.
func (x *Expander) find(c ToolCallChunk) (lane string, found bool, reason string) {
	tag := c.SubagentRunID
	if c.ToolCallID != nil {
		lane, found = x.holder(*c.ToolCallID)
		switch {
		case !found:
			return tag, false, ""
		case tag != "" && tag != lane:
			return "", false, "the subagentRunId is not that of the call's first chunk"
		}
		return lane, true, ""
	}
	// Without an id it goes on with what is open: in its own lane, else, when
	// it has no tag, in the only one there is.
	if _, found = x.open[tag]; found || tag != "" {
		return tag, found, ""
	}
	if len(x.open) > 1 {
		return "", false, "the chunk has no toolCallId and several calls are open"
	}
	for lane := range x.open {
		return lane, true, ""
	}
	return "", false, ""
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

// holder finds the lane in which a call is open by chunks.
func (x *Expander) holder(id string) (lane string, found bool) {
	for lane, o := range x.open {
		if o.id == id {
			return lane, true
		}
	}
	return "", false
}

// closeFor ends the stream in the event's lane, and that of the call that the
// event names: the two spellings do not mix within one call.
func (x *Expander) closeFor(lane, toolCallID string) []Event {
	out := x.close(lane)
	if held, found := x.holder(toolCallID); found {
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
