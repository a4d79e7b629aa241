package agui

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Assembler puts the calls of a stream together. Give it expanded and verified
// events: it trusts their order. The zero value is ready. It is not safe for
// concurrent use.
type Assembler struct {
	// MaxArguments is the longest text that is kept of one call, in bytes; 0
	// means 1 MiB. One byte more is kept of a longer one, so that whoever
	// checks its length finds it too long.
	MaxArguments int

	calls map[string]*assembly // not answered yet
	size  int                  // bytes kept
}

// assembly is a call in the making.
type assembly struct {
	call      ToolCall
	arguments strings.Builder
	size      int
	ended     bool
}

// maxAssembled bounds what an assembler keeps of all unanswered calls of a
// stream, in bytes.
const maxAssembled = 64 << 20

// Seed tells the assembler what a run's input holds: a call that the history
// leaves unanswered and the stream opens again keeps the text it has, and is
// [ToolCall.Reopened]. It comes before the first Add.
func (a *Assembler) Seed(messages []Message) error {
	for _, c := range PendingCalls(messages) {
		known := a.start(c.ID, c)
		known.ended = true
		if err := a.add(known, c.Arguments, c.Metadata); err != nil {
			return err
		}
	}
	return nil
}

// Add takes the next event. At the end of a call it returns the call, before
// which nothing may be done with it, and nil otherwise. The error says that the
// unanswered calls are too long together.
func (a *Assembler) Add(e Event) (*ToolCall, error) {
	switch e := e.(type) {
	case ToolCallStart:
		c := a.start(e.ToolCallID, ToolCall{
			ID: e.ToolCallID, Name: e.ToolCallName, ParentMessageID: e.ParentMessageID, SubagentRunID: e.SubagentRunID,
		})
		return nil, a.add(c, "", e.Metadata)
	case ToolCallArgs:
		return nil, a.add(a.calls[e.ToolCallID], e.Delta, e.Metadata)
	case ToolCallEnd:
		c := a.calls[e.ToolCallID]
		if c == nil {
			return nil, nil
		}
		if err := a.add(c, "", e.Metadata); err != nil {
			return nil, err
		}
		c.ended = true
		whole := c.call
		whole.Arguments = c.arguments.String()
		whole.Metadata = maps.Clone(c.call.Metadata)
		return &whole, nil
	case ToolCallResult:
		// An answered call cannot be opened again.
		if c := a.calls[e.ToolCallID]; c != nil {
			a.size -= c.size
			delete(a.calls, e.ToolCallID)
		}
	}
	return nil, nil
}

// start opens a call, for the first time or again.
func (a *Assembler) start(id string, as ToolCall) *assembly {
	if c := a.calls[id]; c != nil {
		c.call.Reopened = c.call.Reopened || c.ended
		return c
	}
	if a.calls == nil {
		a.calls = map[string]*assembly{}
	}
	as.Arguments, as.Metadata = "", nil // they come by add
	c := &assembly{call: as}
	a.calls[id] = c
	return c
}

// add keeps what there is room for in the call.
func (a *Assembler) add(c *assembly, delta string, m Metadata) error {
	if c == nil {
		return nil
	}
	most := a.MaxArguments
	if most == 0 {
		most = 1 << 20
	}
	delta = delta[:min(len(delta), most+1-c.arguments.Len())]
	c.arguments.WriteString(delta)
	grown := len(delta)
	for key, value := range m {
		if c.call.Metadata == nil {
			c.call.Metadata = Metadata{}
		}
		grown += len(key) + len(value)
		c.call.Metadata[key] = value
	}
	c.size += grown
	if a.size += grown; a.size > maxAssembled {
		return fmt.Errorf("agui: the unanswered calls are longer than %d bytes together", maxAssembled)
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
