package agui

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// PendingCalls returns the calls that a history leaves unanswered, in the
// order they were made. A tool message answers the calls of its toolCallId that
// stand before it; a call that stands there twice is one call, the first.
func PendingCalls(messages []Message) []ToolCall {
	var made []ToolCall
	open := map[string]int{} // by id: where in made
	for _, m := range messages {
		switch m := m.(type) {
		case AssistantMessage:
			for _, c := range m.ToolCalls {
				if _, twice := open[c.ID]; !twice {
					open[c.ID] = len(made)
					made = append(made, c)
				}
			}
		case ToolMessage:
			delete(open, m.ToolCallID)
		}
	}
	var calls []ToolCall
	for _, i := range slices.Sorted(maps.Values(open)) {
		calls = append(calls, made[i])
	}
	return calls
}

// Answered makes the tool message of a call that succeeded.
func Answered(messageID, toolCallID string, c Content) ToolMessage {
	return ToolMessage{MessageBase: MessageBase{ID: messageID}, ToolCallID: toolCallID, Content: c}
}

// Failed makes the tool message of a call that failed. The reason is for the
// model and for people; a partial result stands beside it, and where there is
// none the content is the reason, since not every model sees the error.
func Failed(messageID, toolCallID, reason string, partial Content) ToolMessage {
	if len(partial.List()) == 0 {
		partial = Content{Text: reason}
	}
	m := Answered(messageID, toolCallID, partial)
	m.Error = reason
	return m
}

// Declined makes the tool message of a call that somebody decided not to run.
// It says so: a declined call must not look like one that ran.
func Declined(messageID, toolCallID, reason string) ToolMessage {
	text := "The call was declined and the tool was not run."
	if reason != "" {
		text = "The call was declined and the tool was not run: " + reason
	}
	return Failed(messageID, toolCallID, text, Content{})
}

// Reply makes the messages of the next run's input: the history, with each
// answer behind the message that made the call and behind the answers that are
// there. Activities are left out; they are not for an agent.
//
// It refuses, with every reason, as long as a pending call has no answer, and
// answers of calls that are not pending, second answers, and used message ids.
func Reply(history []Message, answers ...ToolMessage) ([]Message, error) {
	var errs []error
	ids := map[string]bool{}
	for _, m := range history {
		ids[m.MessageID()] = true
	}
	open := map[string]ToolCall{}
	pending := PendingCalls(history)
	for _, c := range pending {
		open[c.ID] = c
	}
	behind := map[string][]ToolMessage{} // by the id of the message that made the call
	for _, a := range answers {
		c, ok := open[a.ToolCallID]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("agui: the call %s is not pending, or is answered twice", clip(a.ToolCallID)))
			continue
		case a.ID == "" || ids[a.ID] || a.ID == a.ToolCallID:
			errs = append(errs, fmt.Errorf("agui: the answer of the call %s has no message id of its own", clip(a.ToolCallID)))
		}
		ids[a.ID] = true
		delete(open, a.ToolCallID)
		behind[c.ParentMessageID] = append(behind[c.ParentMessageID], a)
	}
	for _, c := range pending {
		if _, unanswered := open[c.ID]; unanswered {
			errs = append(errs, fmt.Errorf("agui: the pending call %s has no answer", clip(c.ID)))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return seat(history, behind), nil
}

// seat puts answers in their places. Providers want the answers of a message's
// calls directly behind it.
func seat(history []Message, behind map[string][]ToolMessage) []Message {
	var (
		out   []Message
		owner string
	)
	flush := func() {
		for _, a := range behind[owner] {
			out = append(out, a)
		}
		delete(behind, owner)
	}
	for _, m := range history {
		switch m := m.(type) {
		case ActivityMessage:
			continue
		case ToolMessage:
		case AssistantMessage:
			flush()
			owner = m.ID
		default:
			flush()
			owner = ""
		}
		out = append(out, m)
	}
	flush()
	return out
}
