package agui

import (
	"encoding/json"
	"fmt"
)

// Downgrade spells e for a peer from before 1.0, which refuses a whole run for
// what it does not know:
//
//   - the content of a result becomes its text parts, joined, with a warning
//     for each part that was dropped and nothing in its place;
//   - the list of pending calls is left out; the peer derives it;
//   - the outcome "cancelled" becomes RUN_ERROR with the code "cancelled". The
//     old protocol has no word for it, and success it was not.
//
// Ids and order stay. All other events are returned as they are.
func Downgrade(e Event) (Event, []Warning) {
	switch e := e.(type) {
	case ToolCallResult:
		text, dropped := e.Content.Flatten()
		e.Content = Content{Text: text}
		return e, flattened(TypeToolCallResult, e.ToolCallID, dropped)
	case RunFinished:
		switch {
		case e.Outcome == nil:
		case e.Outcome.Type == OutcomeCancelled:
			return RunError{Base: e.Base, Message: "The run was cancelled.", Code: OutcomeCancelled, Usage: e.Usage}, nil
		case e.Outcome.PendingToolCallIDs != nil:
			o := *e.Outcome
			o.PendingToolCallIDs = nil
			e.Outcome = &o
		}
		return e, nil
	case Other:
		if e.Type == "MESSAGES_SNAPSHOT" {
			return downgradeSnapshot(e)
		}
	}
	return e, nil
}

func flattened(t EventType, toolCallID string, dropped []string) []Warning {
	var warnings []Warning
	for _, part := range dropped {
		warnings = append(warnings, Warning{Type: t, Field: "content", Message: fmt.Sprintf("a part of type %s was dropped from the result of the call %s: the peer takes text alone", part, clip(toolCallID))})
	}
	return warnings
}

// downgradeSnapshot flattens the tool messages of a MESSAGES_SNAPSHOT. One that
// is malformed is passed on as it is: the peer will say so.
func downgradeSnapshot(e Other) (Event, []Warning) {
	var members map[string]json.RawMessage
	var messages []map[string]json.RawMessage
	if json.Unmarshal(e.JSON, &members) != nil || json.Unmarshal(members["messages"], &messages) != nil {
		return e, nil
	}
	var (
		warnings []Warning
		changed  bool
	)
	for _, m := range messages {
		var c Content
		if string(m["role"]) != `"tool"` || !begins(m["content"], '[') || json.Unmarshal(m["content"], &c) != nil {
			continue
		}
		var id string
		_ = json.Unmarshal(m["toolCallId"], &id) // only for the warning
		text, dropped := c.Flatten()
		m["content"], changed = mustJSON(text), true
		warnings = append(warnings, flattened(e.Type, id, dropped)...)
	}
	if changed {
		members["messages"] = mustJSON(messages)
		e.JSON = mustJSON(members)
	}
	return e, warnings
}
