package aguidoor

import (
	"encoding/json"
	"fmt"

	"github.com/toolfleet/toolfleet/agui"
)

// messageChunks turns the chunks of texts and of reasoning into the START,
// CONTENT and END that they stand for, as agui.Expander does with those of
// calls, behind which it stands. A gateway needs that: an event of its own
// between two chunks would end the message they belong to.
type messageChunks struct {
	open  map[string]openMessage // by lane
	order []string               // lanes, as they were opened
}

// openMessage is the message that a lane's chunks belong to.
type openMessage struct{ kind, id string }

// messageChunk is a TEXT_MESSAGE_CHUNK or a REASONING_MESSAGE_CHUNK.
type messageChunk struct {
	MessageID     string          `json:"messageId"`
	Role          string          `json:"role"`
	Name          string          `json:"name"`
	Delta         string          `json:"delta"`
	RawEvent      json.RawMessage `json:"rawEvent"`
	Metadata      json.RawMessage `json:"metadata"`
	SubagentRunID string          `json:"subagentRunId"`
}

// message is an event of a message.
type message struct {
	Type          agui.EventType  `json:"type"`
	RawEvent      json.RawMessage `json:"rawEvent,omitempty"`
	Metadata      json.RawMessage `json:"metadata,omitempty"`
	SubagentRunID string          `json:"subagentRunId,omitempty"`
	MessageID     string          `json:"messageId"`
	Role          string          `json:"role,omitempty"`
	Name          string          `json:"name,omitempty"`
	Delta         *string         `json:"delta,omitempty"`
}

func (m message) event() agui.Event {
	raw, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("aguidoor: %v", err)) // strings, and JSON that was decoded
	}
	return agui.Other{Type: m.Type, JSON: raw}
}

// expand returns what stands for ev.
func (x *messageChunks) expand(ev agui.Event) ([]agui.Event, error) {
	switch ev := ev.(type) {
	case agui.RunStarted, agui.RunFinished, agui.RunError:
		return append(x.closeAll(), ev), nil
	case agui.ActivitySnapshot, agui.ActivityDelta:
		return []agui.Event{ev}, nil
	case agui.Other:
		switch ev.Type {
		case "TEXT_MESSAGE_CHUNK":
			return x.chunk(ev, "TEXT_MESSAGE")
		case "REASONING_MESSAGE_CHUNK":
			return x.chunk(ev, "REASONING_MESSAGE")
		case "MESSAGES_SNAPSHOT":
			return append(x.closeAll(), ev), nil
		case "RAW", "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED":
			return []agui.Event{ev}, nil
		}
	}
	return append(x.close(laneOf(ev)), ev), nil
}

// chunk opens a message, or goes on with one. That a chunk without an id has
// one to go on with was seen by the expander of calls.
func (x *messageChunks) chunk(ev agui.Other, kind string) ([]agui.Event, error) {
	var c messageChunk
	if err := json.Unmarshal(ev.JSON, &c); err != nil {
		return nil, &agui.MalformedError{Type: ev.Type, Message: err.Error()}
	}
	lane, found := x.find(kind, c)
	var out []agui.Event
	if !found {
		if c.MessageID == "" {
			return nil, &agui.MalformedError{Type: ev.Type, Field: "messageId", Message: "the first chunk of a message must have one"}
		}
		out = append(out, x.close(lane)...)
		out = append(out, x.start(kind, lane, c).event())
		c.Metadata = nil // it is the start's
	}
	if c.Delta == "" && c.RawEvent == nil && c.Metadata == nil {
		return out, nil
	}
	return append(out, message{
		Type: agui.EventType(kind + "_CONTENT"), RawEvent: c.RawEvent, Metadata: c.Metadata,
		SubagentRunID: lane, MessageID: x.open[lane].id, Delta: &c.Delta,
	}.event()), nil
}

// find tells the lane of a chunk, and whether its message is open there.
func (x *messageChunks) find(kind string, c messageChunk) (lane string, found bool) {
	for _, lane := range x.order {
		o := x.open[lane]
		if o.kind == kind && c.MessageID == o.id {
			return lane, true
		}
	}
	if o := x.open[c.SubagentRunID]; c.MessageID != "" || o.kind == kind || c.SubagentRunID != "" {
		return c.SubagentRunID, c.MessageID == "" && o.kind == kind
	}
	for _, lane := range x.order {
		if x.open[lane].kind == kind {
			return lane, true
		}
	}
	return c.SubagentRunID, false
}

func (x *messageChunks) start(kind, lane string, c messageChunk) message {
	if x.open == nil {
		x.open = map[string]openMessage{}
	}
	x.open[lane] = openMessage{kind, c.MessageID}
	x.order = append(x.order, lane)
	m := message{Type: agui.EventType(kind + "_START"), Metadata: c.Metadata, SubagentRunID: lane, MessageID: c.MessageID, Role: c.Role, Name: c.Name}
	switch {
	case kind != "TEXT_MESSAGE":
		m.Role, m.Name = "reasoning", ""
	case m.Role == "":
		m.Role = "assistant"
	}
	return m
}

// close ends the message that is open in a lane, if one is.
func (x *messageChunks) close(lane string) []agui.Event {
	o, ok := x.open[lane]
	if !ok {
		return nil
	}
	delete(x.open, lane)
	for i, l := range x.order {
		if l == lane {
			x.order = append(x.order[:i:i], x.order[i+1:]...)
			break
		}
	}
	return []agui.Event{message{Type: agui.EventType(o.kind + "_END"), SubagentRunID: lane, MessageID: o.id}.event()}
}

func (x *messageChunks) closeAll() []agui.Event {
	var out []agui.Event
	for len(x.order) > 0 {
		out = append(out, x.close(x.order[0])...)
	}
	return out
}

// laneOf is the lane that an event stands in: its subagent, or the parent.
func laneOf(ev agui.Event) string {
	switch ev := ev.(type) {
	case agui.ToolCallStart:
		return ev.SubagentRunID
	case agui.ToolCallArgs:
		return ev.SubagentRunID
	case agui.ToolCallEnd:
		return ev.SubagentRunID
	case agui.ToolCallResult:
		return ev.SubagentRunID
	case agui.Custom:
		return ev.SubagentRunID
	case agui.Other:
		return membersOf(ev).SubagentRunID
	}
	return ""
}

// members are those of relayed events that a gateway looks at.
type members struct {
	MessageID     string `json:"messageId"`
	StepName      string `json:"stepName"`
	SubagentRunID string `json:"subagentRunId"`
}

func membersOf(ev agui.Other) members {
	var m members
	_ = json.Unmarshal(ev.JSON, &m) // the decoder has seen that they are strings
	return m
}
