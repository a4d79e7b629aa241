package agui

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Short spellings for conversations.
func run(id string) Event { return RunStarted{ThreadID: "t", RunID: id, ProtocolVersion: "1.0"} }

func finish(id string, pending ...string) Event {
	return RunFinished{ThreadID: "t", RunID: id, Outcome: &Outcome{Type: "success", PendingToolCallIDs: pending}}
}
func start(id string) Event  { return ToolCallStart{ToolCallID: id, ToolCallName: "n"} }
func args(id string) Event   { return ToolCallArgs{ToolCallID: id, Delta: "{}"} }
func end(id string) Event    { return ToolCallEnd{ToolCallID: id} }
func answer(id string) Event { return ToolCallResult{MessageID: "res-" + id, ToolCallID: id} }
func snapshot(id string) Event {
	return ActivitySnapshot{MessageID: id, ActivityType: "a", Content: json.RawMessage("{}")}
}
func delta(id string) Event { return ActivityDelta{MessageID: id, ActivityType: "a"} }
func other(text string) Event {
	ev, _, err := Decode([]byte(text))
	if err != nil {
		panic(err)
	}
	return ev
}

// verify returns the first error of a stream.
func verify(events []Event) error {
	var v Verifier
	for _, e := range events {
		if err := v.Check(e); err != nil {
			return err
		}
	}
	return v.End()
}

func TestVerifierAccepts(t *testing.T) {
	for name, events := range map[string][]Event{
		"a call": {run("r"), start("c"), args("c"), args("c"), end("c"), snapshot("x"), delta("x"), delta("x"), answer("c"), finish("r")},
		"two calls, one pending": {
			run("r"), start("a"), start("b"), args("b"), args("a"), end("b"), end("a"), answer("a"), finish("r", "b"),
		},
		"pending without a list":      {run("r"), start("a"), end("a"), finish("r")},
		"without an outcome":          {run("r"), RunFinished{ThreadID: "t", RunID: "r"}},
		"a reopened call":             {run("r"), start("a"), args("a"), end("a"), start("a"), args("a"), end("a"), finish("r", "a")},
		"an answer in the next run":   {run("r"), start("a"), end("a"), finish("r", "a"), run("s"), answer("a"), finish("s")},
		"an error with calls open":    {run("r"), start("a"), RunError{Message: "m"}},
		"an error first":              {RunError{Message: "m"}},
		"a late error":                {run("r"), finish("r"), RunError{Message: "m"}},
		"a run after an error":        {run("r"), RunError{Message: "m"}, run("s"), finish("s")},
		"the call of a subagent":      {run("r"), ToolCallStart{Base: Base{SubagentRunID: "s"}, ToolCallID: "a", ToolCallName: "n"}, args("a"), end("a"), answer("a"), finish("r")},
		"text, steps and state":       {run("r"), other(`{"type":"STEP_STARTED","stepName":"s"}`), other(`{"type":"TEXT_MESSAGE_START","messageId":"m"}`), other(`{"type":"STATE_SNAPSHOT","snapshot":1}`), other(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":""}`), other(`{"type":"TEXT_MESSAGE_END","messageId":"m"}`), other(`{"type":"STEP_FINISHED","stepName":"s"}`), finish("r")},
		"a custom event":              {run("r"), Custom{Name: "toolfleet.x", Value: json.RawMessage("1")}, finish("r")},
		"a failing call among others": {run("r"), start("a"), end("a"), answer("a"), start("b"), end("b"), answer("b"), finish("r")},
	} {
		if err := verify(events); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVerifierRefuses(t *testing.T) {
	tagged := func(tag string) ToolCallStart {
		return ToolCallStart{Base: Base{SubagentRunID: tag}, ToolCallID: "a", ToolCallName: "n"}
	}
	for _, tt := range []struct {
		name   string
		events []Event
		want   string
	}{
		{"nothing", nil, "no run has begun"},
		{"no start", []Event{start("a")}, "event 1 TOOL_CALL_START: the first event must be RUN_STARTED"},
		{"no end", []Event{run("r"), start("a"), end("a"), answer("a")}, "end of stream: the run r has no end"},
		{"two runs at once", []Event{run("r"), run("s")}, "still going on"},
		{"after the end", []Event{run("r"), finish("r"), start("a")}, "has finished already"},
		{"after the error", []Event{run("r"), RunError{}, RunError{}}, "RUN_ERROR already"},
		{"the same run again", []Event{run("r"), finish("r"), run("r")}, "used on this thread before"},
		{"another run's end", []Event{run("r"), finish("s")}, "not those of the run"},
		{"started twice", []Event{run("r"), start("a"), start("a")}, "open already"},
		{"arguments before the start", []Event{run("r"), args("a")}, "not open"},
		{"arguments after the end", []Event{run("r"), start("a"), end("a"), args("a")}, "not open"},
		{"ended twice", []Event{run("r"), start("a"), end("a"), end("a")}, "not open"},
		{"open at the end", []Event{run("r"), start("a"), finish("r")}, "still open: tool call a"},
		{"result before the end", []Event{run("r"), start("a"), answer("a")}, "before the call's end"},
		{"result of no call", []Event{run("r"), answer("a")}, "never started"},
		{"two results", []Event{run("r"), start("a"), end("a"), answer("a"), ToolCallResult{MessageID: "other", ToolCallID: "a"}}, "has a result already"},
		{"one messageId for two results", []Event{run("r"), start("a"), end("a"), start("b"), end("b"), answer("a"), ToolCallResult{MessageID: "res-a", ToolCallID: "b"}}, "used before"},
		{"a messageId of an activity", []Event{run("r"), start("a"), end("a"), snapshot("res-a"), answer("a")}, "used before"},
		{"an activity of a result's id", []Event{run("r"), start("a"), end("a"), answer("a"), snapshot("res-a")}, "another message"},
		{"the call's id as messageId", []Event{run("r"), start("a"), end("a"), ToolCallResult{MessageID: "a", ToolCallID: "a"}}, "that of a call"},
		{"reopened under another name", []Event{run("r"), start("a"), end("a"), ToolCallStart{ToolCallID: "a", ToolCallName: "m"}}, "another toolCallName"},
		{"reopened under another parent", []Event{run("r"), start("a"), end("a"), ToolCallStart{ToolCallID: "a", ToolCallName: "n", ParentMessageID: "p"}}, "another parentMessageId"},
		{"reopened by a subagent", []Event{run("r"), start("a"), end("a"), tagged("s")}, "another subagentRunId"},
		{"reopened after its answer", []Event{run("r"), start("a"), end("a"), answer("a"), start("a")}, "answered already"},
		{"another subagent's arguments", []Event{run("r"), tagged("s"), ToolCallArgs{Base: Base{SubagentRunID: "u"}, ToolCallID: "a"}}, "not that of the call's start"},
		{"another subagent's message", []Event{run("r"), other(`{"type":"TEXT_MESSAGE_START","messageId":"m","subagentRunId":"s"}`), ToolCallStart{ToolCallID: "a", ToolCallName: "n", ParentMessageID: "m"}}, "another subagent than the message"},
		{"a pending call too many", []Event{run("r"), start("a"), end("a"), answer("a"), finish("r", "a")}, "pendingToolCallIds"},
		{"a pending call too few", []Event{run("r"), start("a"), end("a"), start("b"), end("b"), finish("r", "a")}, "pendingToolCallIds"},
		{"pending calls in another order", []Event{run("r"), start("a"), end("a"), start("b"), end("b"), finish("r", "b", "a")}, "pendingToolCallIds"},
		{"a pending call of an earlier run", []Event{run("r"), start("a"), end("a"), finish("r", "a"), run("s"), finish("s", "a")}, "pendingToolCallIds"},
		{"delta before its snapshot", []Event{run("r"), delta("x")}, "no snapshot"},
		{"delta of another type", []Event{run("r"), snapshot("x"), ActivityDelta{MessageID: "x", ActivityType: "b"}}, "activityType"},
		{"a chunk", []Event{run("r"), ToolCallChunk{}}, "expanded first"},
		{"a message open at the end", []Event{run("r"), other(`{"type":"TEXT_MESSAGE_START","messageId":"m"}`), finish("r")}, "still open: text message m"},
		{"a step of another owner", []Event{run("r"), other(`{"type":"STEP_STARTED","stepName":"s"}`), other(`{"type":"STEP_FINISHED","stepName":"s","subagentRunId":"u"}`)}, "step is not open"},
		{"another subagent's text", []Event{run("r"), other(`{"type":"TEXT_MESSAGE_START","messageId":"m"}`), other(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"","subagentRunId":"s"}`)}, "not that of the text message's start"},
		{"a message without an id", []Event{run("r"), Other{Type: "TEXT_MESSAGE_START", JSON: json.RawMessage(`{}`)}}, "messageId is missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := verify(tt.events)
			var sequence *SequenceError
			if !errors.As(err, &sequence) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestVerifierIsBounded(t *testing.T) {
	var v Verifier
	err := v.Check(run("r"))
	for i := 0; err == nil && i <= maxTracked; i++ {
		err = v.Check(start(fmt.Sprint(i)))
	}
	if err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("error = %v", err)
	}
}

// Every interleaving of whole calls is accepted, and the pending calls are the
// started ones minus the answered ones, in order.
func TestVerifierPending(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 6).Draw(t, "calls")
		left := make([][]Event, n)
		answered := map[string]bool{}
		for i := range left {
			id := string(rune('a' + i))
			left[i] = []Event{start(id), args(id), end(id)}
			if rapid.Bool().Draw(t, "answered") {
				left[i] = append(left[i], answer(id))
				answered[id] = true
			}
		}
		var v Verifier
		var want []string
		check := func(e Event) {
			if err := v.Check(e); err != nil {
				t.Fatal(err)
			}
		}
		check(run("r"))
		for len(left) > 0 {
			i := rapid.IntRange(0, len(left)-1).Draw(t, "next")
			if s, ok := left[i][0].(ToolCallStart); ok && !answered[s.ToolCallID] {
				want = append(want, s.ToolCallID)
			}
			check(left[i][0])
			if left[i] = left[i][1:]; len(left[i]) == 0 {
				left = slices.Delete(left, i, i+1)
			}
		}
		if diff := cmp.Diff(want, v.Pending()); diff != "" {
			t.Fatalf("pending (-want +got):\n%s", diff)
		}
		check(finish("r", want...))
		if err := v.End(); err != nil {
			t.Fatal(err)
		}
	})
}
