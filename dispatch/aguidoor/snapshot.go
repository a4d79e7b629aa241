package aguidoor

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/toolfleet/toolfleet/agui"
)

// withAnswers puts the fleet's answers into a MESSAGES_SNAPSHOT of an agent. A
// snapshot is the complete set of messages, and an agent that restates them in
// the middle of its run has not seen the answers yet: the client would forget
// them, and the calls would look unanswered. Each goes behind the message that
// made its call; where that is gone, so is the answer.
func withAnswers(ev agui.Other, answers []agui.ToolCallResult) (agui.Other, error) {
	var event map[string]json.RawMessage
	var messages []json.RawMessage
	if err := json.Unmarshal(ev.JSON, &event); err != nil {
		return ev, fmt.Errorf("aguidoor: snapshot: %w", err)
	}
	if err := json.Unmarshal(event["messages"], &messages); err != nil {
		return ev, fmt.Errorf("aguidoor: snapshot: %w", err)
	}
	changed := false
	for _, a := range answers {
		at, ok := seat(messages, a.ToolCallID)
		if !ok {
			continue
		}
		m, err := json.Marshal(a.Message())
		if err != nil {
			return ev, fmt.Errorf("aguidoor: snapshot: %w", err)
		}
		messages, changed = slices.Insert(messages, at, json.RawMessage(m)), true
	}
	if !changed {
		return ev, nil
	}
	list, err := json.Marshal(messages)
	if err != nil {
		return ev, fmt.Errorf("aguidoor: snapshot: %w", err)
	}
	event["messages"] = list
	if ev.JSON, err = json.Marshal(event); err != nil {
		return ev, fmt.Errorf("aguidoor: snapshot: %w", err)
	}
	return ev, nil
}

// seat finds where the answer of a call belongs: behind the message that made
// it, and behind the answers that are there. It reports false when the call is
// answered already, or not there.
func seat(messages []json.RawMessage, toolCallID string) (at int, ok bool) {
	behind := false // between the message and what comes after its answers
	for i, raw := range messages {
		var m struct {
			Role       string `json:"role"`
			ToolCallID string `json:"toolCallId"`
			ToolCalls  []struct {
				ID string `json:"id"`
			} `json:"toolCalls"`
		}
		if json.Unmarshal(raw, &m) != nil {
			return 0, false
		}
		for _, c := range m.ToolCalls {
			if c.ID == toolCallID {
				at, ok, behind = i+1, true, true
			}
		}
		switch {
		case m.Role == string(agui.RoleTool) && m.ToolCallID == toolCallID:
			return 0, false
		case m.Role == string(agui.RoleTool) && behind:
			at = i + 1
		case at != i+1:
			behind = false
		}
	}
	return at, ok
}
