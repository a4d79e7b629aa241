package aguidoor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolfleet/toolfleet/agui"
)

// closing knows what a relayed stream has opened and not closed, and how to
// close it: a run that is cancelled in the middle must not end around it.
type closing struct {
	ends      []openItem // as they were opened
	subagents int
}

// openItem is something that is open, with the event that closes it.
type openItem struct {
	what, name string
	end        agui.Event
}

// note takes the next event that was sent.
func (c *closing) note(ev agui.Event) {
	switch ev := ev.(type) {
	case agui.ToolCallStart:
		c.open("call", ev.ToolCallID, agui.ToolCallEnd{ToolCallID: ev.ToolCallID})
	case agui.ToolCallEnd:
		c.close("call", ev.ToolCallID)
	case agui.Other:
		c.other(ev)
	}
}

func (c *closing) other(ev agui.Other) {
	m := membersOf(ev)
	what, opens := strings.CutSuffix(string(ev.Type), "_START")
	what, closes := strings.CutSuffix(what, "_END")
	switch {
	case ev.Type == "SUBAGENT_STARTED":
		c.subagents++
	case ev.Type == "SUBAGENT_FINISHED", ev.Type == "SUBAGENT_ERROR":
		c.subagents--
	case ev.Type == "STEP_STARTED":
		// A step belongs to its subagent, which the end has to name.
		c.open("step "+m.SubagentRunID, m.StepName, stepEnd(m))
	case ev.Type == "STEP_FINISHED":
		c.close("step "+m.SubagentRunID, m.StepName)
	case opens:
		c.open(what, m.MessageID, message{Type: agui.EventType(what + "_END"), MessageID: m.MessageID}.event())
	case closes:
		c.close(what, m.MessageID)
	}
}

// stepEnd closes a step.
func stepEnd(m members) agui.Event {
	raw, err := json.Marshal(struct {
		Type          agui.EventType `json:"type"`
		SubagentRunID string         `json:"subagentRunId,omitempty"`
		StepName      string         `json:"stepName"`
	}{"STEP_FINISHED", m.SubagentRunID, m.StepName})
	if err != nil {
		panic(fmt.Sprintf("aguidoor: %v", err)) // strings
	}
	return agui.Other{Type: "STEP_FINISHED", JSON: raw}
}

func (c *closing) open(what, name string, end agui.Event) {
	c.ends = append(c.ends, openItem{what, name, end})
}

func (c *closing) close(what, name string) {
	c.ends = slices.DeleteFunc(c.ends, func(o openItem) bool { return o.what == what && o.name == name })
}

// all returns the events that close what is open, the last opened first. It
// reports false when a subagent is open: how a subagent ended is not ours to
// say.
func (c *closing) all() ([]agui.Event, bool) {
	var evs []agui.Event
	for _, o := range slices.Backward(c.ends) {
		evs = append(evs, o.end)
	}
	return evs, c.subagents == 0
}
