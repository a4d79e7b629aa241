package agui

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func assistant(id string, calls ...string) AssistantMessage {
	m := AssistantMessage{MessageBase: MessageBase{ID: id}}
	for _, c := range calls {
		m.ToolCalls = append(m.ToolCalls, ToolCall{ID: c, Name: "n", Arguments: "{}", ParentMessageID: id})
	}
	return m
}

func user(id string) UserMessage {
	return UserMessage{MessageBase: MessageBase{ID: id}, Content: Content{Text: "hi"}}
}

func toolMessage(call string) ToolMessage { return Answered("res-"+call, call, Content{Text: "ok"}) }

func spellIDs[T any](list []T, id func(T) string) string {
	var out []string
	for _, x := range list {
		out = append(out, id(x))
	}
	return strings.Join(out, " ")
}

func callID(c ToolCall) string { return c.ID }

func TestPendingCalls(t *testing.T) {
	for want, history := range map[string][]Message{
		"":    {user("u"), assistant("m", "a", "b"), toolMessage("b"), toolMessage("a")},
		"b d": {assistant("m", "a", "b", "c"), toolMessage("a"), toolMessage("c"), user("u"), assistant("n", "d")},
		"a":   {toolMessage("a"), assistant("m", "a")},                      // an answer answers what stands before it
		"a b": {assistant("m", "a", "b"), assistant("n", "a")},              // a call restated is one call
		"x":   {assistant("m", "x"), toolMessage("x"), assistant("n", "x")}, // an id used anew in another turn
	} {
		got := PendingCalls(history)
		if s := spellIDs(got, callID); s != want {
			t.Errorf("pending %q, want %q", s, want)
		}
	}
	again := PendingCalls([]Message{assistant("m", "x"), toolMessage("x"), assistant("n", "x")})
	if again[0].ParentMessageID != "n" {
		t.Errorf("the pending call belongs to %q", again[0].ParentMessageID)
	}
}

func TestReplySeatsAnswers(t *testing.T) {
	history := []Message{
		user("u"), assistant("m", "a", "b"), toolMessage("b"),
		ActivityMessage{ID: "exec", ActivityType: "x", Content: json.RawMessage("{}")},
		user("v"), assistant("n", "c"),
	}
	got, err := Reply(history, toolMessage("c"), Failed("f", "a", "The disk is full.", Content{}))
	if err != nil {
		t.Fatal(err)
	}
	if s := spellIDs(got, Message.MessageID); s != "u m res-b f v n res-c" {
		t.Errorf("the next history is %s", s)
	}
	if p := PendingCalls(got); p != nil {
		t.Errorf("still pending: %v", p)
	}
	if got[3].(ToolMessage).Error != "The disk is full." {
		t.Errorf("answer %+v", got[3])
	}
}

func TestReplyRefuses(t *testing.T) {
	history := []Message{assistant("m", "a", "b"), toolMessage("b")}
	for want, answers := range map[string][]ToolMessage{
		"pending call a has no answer":   nil,
		"call b is not pending":          {toolMessage("a"), Answered("x", "b", Content{})},
		"call c is not pending":          {toolMessage("a"), toolMessage("c")},
		"or is answered twice":           {toolMessage("a"), Answered("x", "a", Content{})},
		"call a has no message id":       {Answered("", "a", Content{})},
		"has no message id of its own":   {Answered("m", "a", Content{})},
		"a has no message id of its own": {Answered("a", "a", Content{})},
	} {
		if got, err := Reply(history, answers...); err == nil || got != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestAnswersSayWhatHappened(t *testing.T) {
	partial := Content{Parts: []Part{Text("so far")}}
	for _, tt := range []struct{ got, want ToolMessage }{
		{Failed("m", "c", "It broke.", Content{}), ToolMessage{MessageBase: MessageBase{ID: "m"}, ToolCallID: "c", Content: Content{Text: "It broke."}, Error: "It broke."}},
		{Failed("m", "c", "It broke.", partial), ToolMessage{MessageBase: MessageBase{ID: "m"}, ToolCallID: "c", Content: partial, Error: "It broke."}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	d := Declined("m", "c", "The user said no.")
	if !strings.Contains(d.Error, "declined") || !strings.Contains(d.Content.Text, "not run: The user said no.") {
		t.Errorf("declined: %+v", d)
	}
}

// seeded makes a verifier and an assembler that know a history.
func seeded(t *testing.T, history ...Message) (*Verifier, *Assembler) {
	t.Helper()
	var (
		v Verifier
		a Assembler
	)
	v.Seed(history)
	if err := a.Seed(history); err != nil {
		t.Fatal(err)
	}
	return &v, &a
}

func TestSeededVerifier(t *testing.T) {
	history := []Message{user("u"), assistant("m", "a", "b"), toolMessage("b")}
	for name, tt := range map[string]struct {
		events []Event
		want   string
	}{
		"an answer of the input's call": {[]Event{run("r"), answer("a"), finish("r")}, ""},
		"left unanswered":               {[]Event{run("r"), finish("r")}, ""},
		"answered before":               {[]Event{run("r"), ToolCallResult{MessageID: "x", ToolCallID: "b"}}, "a result already"},
		"a taken message id":            {[]Event{run("r"), ToolCallResult{MessageID: "u", ToolCallID: "a"}}, "used before"},
		"not of this run":               {[]Event{run("r"), finish("r", "a")}, "pendingToolCallIds"},
		"opened again":                  {[]Event{run("r"), ToolCallStart{ToolCallID: "a", ToolCallName: "n", ParentMessageID: "m"}, end("a"), finish("r", "a")}, ""},
		"opened again elsewhere":        {[]Event{run("r"), start("a")}, "another parentMessageId"},
		"continued without a start":     {[]Event{run("r"), args("a")}, "not open"},
	} {
		v, _ := seeded(t, history...)
		var err error
		for _, e := range tt.events {
			if err = v.Check(e); err != nil {
				break
			}
		}
		if err == nil {
			err = v.End()
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}

func TestSeededAssemblerGoesOn(t *testing.T) {
	_, a := seeded(t, assistant("m", "a"))
	var last *ToolCall
	for _, e := range []Event{run("r"), ToolCallStart{ToolCallID: "a", ToolCallName: "n", ParentMessageID: "m"}, args("a"), end("a")} {
		c, err := a.Add(e)
		if err != nil {
			t.Fatal(err)
		}
		last = c
	}
	if diff := cmp.Diff(&ToolCall{ID: "a", Name: "n", Arguments: "{}{}", ParentMessageID: "m", Reopened: true}, last); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDowngrade(t *testing.T) {
	image := Media(PartImage, Source{Type: SourceURL, Value: "u"})
	base := Base{Metadata: Metadata{"k": json.RawMessage("1")}}
	for _, tt := range []struct {
		name     string
		in, want Event
		warnings int
	}{
		{"parts", ToolCallResult{Base: base, MessageID: "m", ToolCallID: "c", Content: Content{Parts: []Part{Text("a"), image, Text("b")}}}, ToolCallResult{Base: base, MessageID: "m", ToolCallID: "c", Content: Content{Text: "ab"}}, 1},
		{"text parts", ToolCallResult{MessageID: "m", ToolCallID: "c", Content: Content{Parts: []Part{Text("a"), Text("b")}}}, ToolCallResult{MessageID: "m", ToolCallID: "c", Content: Content{Text: "ab"}}, 0},
		{"no text", ToolCallResult{MessageID: "m", ToolCallID: "c", Content: Content{Parts: []Part{image, image}}}, ToolCallResult{MessageID: "m", ToolCallID: "c"}, 2},
		{"text", answer("c"), answer("c"), 0},
		{"pending", finish("r", "a"), finish("r"), 0},
		{"no outcome", RunFinished{ThreadID: "t", RunID: "r"}, RunFinished{ThreadID: "t", RunID: "r"}, 0},
		{"cancelled", RunFinished{Base: base, ThreadID: "t", RunID: "r", Outcome: &Outcome{Type: OutcomeCancelled}}, RunError{Base: base, Message: "The run was cancelled.", Code: "cancelled"}, 0},
		{"interrupt", RunFinished{Outcome: &Outcome{Type: OutcomeInterrupt, Interrupts: []Interrupt{{ID: "i"}}}}, RunFinished{Outcome: &Outcome{Type: OutcomeInterrupt, Interrupts: []Interrupt{{ID: "i"}}}}, 0},
		{"activity", snapshot("x"), snapshot("x"), 0},
		{"state", other(`{"type":"STATE_SNAPSHOT","snapshot":{}}`), other(`{"type":"STATE_SNAPSHOT","snapshot":{}}`), 0},
		{
			"a history",
			other(`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","role":"tool","toolCallId":"c","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"url","value":"u"}}]}]}`),
			other(`{"messages":[{"content":"a","id":"m","role":"tool","toolCallId":"c"}],"type":"MESSAGES_SNAPSHOT"}`), 1,
		},
		{"a history of text", other(`{"type":"MESSAGES_SNAPSHOT", "messages":[{"role":"user","content":[]}]}`), other(`{"type":"MESSAGES_SNAPSHOT", "messages":[{"role":"user","content":[]}]}`), 0},
	} {
		got, warnings := Downgrade(tt.in)
		if diff := cmp.Diff(tt.want, got); diff != "" || len(warnings) != tt.warnings {
			t.Errorf("%s: warnings %v (-want +got):\n%s", tt.name, warnings, diff)
		}
	}
}
