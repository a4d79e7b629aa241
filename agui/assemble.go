package agui

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ToolCall is a call whose arguments are complete. They are text and may be no
// JSON: whoever runs the call decides what that means.
type ToolCall struct {
	ID              string
	Name            string
	ParentMessageID string
	SubagentRunID   string
	Arguments       string
	// Reopened says that the call had ended before and was opened again: the
	// Arguments are those of both times. Whoever acted on the first end must
	// not act again.
	Reopened bool
}

// Assembler puts the calls of a stream together. Give it expanded and verified
// events: it trusts their order. The zero value is ready. It is not safe for
// concurrent use.
type Assembler struct {
	// MaxArguments is the longest text that is kept of one call, in bytes; 0
	// means 1 MiB. One byte more is kept of a longer one, so that whoever
	// checks its length finds it too long.
	MaxArguments int

	calls map[string]*assembly
	size  int // bytes kept
}

// assembly is a call in the making.
type assembly struct {
	call      ToolCall
	arguments strings.Builder
	ended     bool
}

// maxAssembled bounds what an assembler keeps of all calls of a run, in bytes.
const maxAssembled = 64 << 20

// Add takes the next event. At the end of a call it returns the call, before
// which nothing may be done with it, and nil otherwise. The error says that the
// calls of one run are too long together.
func (a *Assembler) Add(e Event) (*ToolCall, error) {
	switch e := e.(type) {
	case RunStarted:
		a.calls, a.size = nil, 0
	case ToolCallStart:
		a.start(e)
	case ToolCallArgs:
		return nil, a.add(a.calls[e.ToolCallID], e.Delta)
	case ToolCallEnd:
		if c := a.calls[e.ToolCallID]; c != nil {
			c.ended = true
			c.call.Arguments = c.arguments.String()
			whole := c.call
			return &whole, nil
		}
	}
	return nil, nil
}

func (a *Assembler) start(e ToolCallStart) {
	if c := a.calls[e.ToolCallID]; c != nil {
		c.call.Reopened = c.ended
		return
	}
	if a.calls == nil {
		a.calls = map[string]*assembly{}
	}
	a.calls[e.ToolCallID] = &assembly{call: ToolCall{
		ID: e.ToolCallID, Name: e.ToolCallName, ParentMessageID: e.ParentMessageID, SubagentRunID: e.SubagentRunID,
	}}
}

// add keeps what there is room for in the call.
func (a *Assembler) add(c *assembly, delta string) error {
	if c == nil {
		return nil
	}
	most := a.MaxArguments
	if most == 0 {
		most = 1 << 20
	}
	delta = delta[:min(len(delta), most+1-c.arguments.Len())]
	if a.size += len(delta); a.size > maxAssembled {
		return fmt.Errorf("agui: the calls of one run are longer than %d bytes together", maxAssembled)
	}
	c.arguments.WriteString(delta)
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
