package agui

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// chunk makes a chunk; "-" stands for an absent member.
func chunk(lane, id, name, delta string) ToolCallChunk {
	member := func(s string) *string {
		if s == "-" {
			return nil
		}
		return &s
	}
	return ToolCallChunk{Base: Base{SubagentRunID: lane}, ToolCallID: member(id), ToolCallName: member(name), Delta: member(delta)}
}

// spell writes events in short: START c n, ARGS c text, END c.
func spell(events []Event) []string {
	var out []string
	for _, e := range events {
		switch e := e.(type) {
		case ToolCallStart:
			out = append(out, strings.TrimRight(fmt.Sprintf("START %s %s %s", e.ToolCallID, e.ToolCallName, e.SubagentRunID), " "))
		case ToolCallArgs:
			out = append(out, fmt.Sprintf("ARGS %s %q", e.ToolCallID, e.Delta))
		case ToolCallEnd:
			out = append(out, "END "+e.ToolCallID)
		default:
			out = append(out, string(e.EventType()))
		}
	}
	return out
}

func expand(events []Event) ([]Event, error) {
	var x Expander
	var out []Event
	for _, e := range events {
		more, err := x.Expand(e)
		if err != nil {
			return out, err
		}
		out = append(out, more...)
	}
	return out, nil
}

func TestExpand(t *testing.T) {
	for _, tt := range []struct {
		name   string
		events []Event
		want   []string
	}{
		{"one call", []Event{chunk("", "a", "n", "x"), chunk("", "a", "-", "y"), chunk("", "-", "-", "z"), finish("r")}, []string{"START a n", `ARGS a "x"`, `ARGS a "y"`, `ARGS a "z"`, "END a", "RUN_FINISHED"}},
		{"no delta yet", []Event{chunk("", "a", "n", "-"), finish("r")}, []string{"START a n", "END a", "RUN_FINISHED"}},
		{"an empty delta", []Event{chunk("", "a", "n", "")}, []string{"START a n", `ARGS a ""`}},
		{"the name again", []Event{chunk("", "a", "n", "x"), chunk("", "a", "n", "y")}, []string{"START a n", `ARGS a "x"`, `ARGS a "y"`}},
		{"the next call ends the one before", []Event{chunk("", "a", "n", "x"), chunk("", "b", "m", "y")}, []string{"START a n", `ARGS a "x"`, "END a", "START b m", `ARGS b "y"`}},
		{"lanes are apart", []Event{chunk("", "a", "n", "x"), chunk("s", "b", "m", "y"), chunk("", "-", "-", "z"), chunk("s", "-", "-", "w"), finish("r")}, []string{"START a n", `ARGS a "x"`, "START b m s", `ARGS b "y"`, `ARGS a "z"`, `ARGS b "w"`, "END a", "END b", "RUN_FINISHED"}},
		{"an untagged chunk finds its call", []Event{chunk("s", "b", "m", "y"), chunk("", "b", "-", "z"), chunk("", "-", "-", "w")}, []string{"START b m s", `ARGS b "y"`, `ARGS b "z"`, `ARGS b "w"`}},
		{"text ends it", []Event{chunk("", "a", "n", "x"), other(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"t"}`)}, []string{"START a n", `ARGS a "x"`, "END a", "TEXT_MESSAGE_CHUNK"}},
		{"a custom event ends it", []Event{chunk("", "a", "n", "x"), Custom{Name: "c"}}, []string{"START a n", `ARGS a "x"`, "END a", "CUSTOM"}},
		{"another lane's text does not", []Event{chunk("", "a", "n", "x"), other(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"t","subagentRunId":"s"}`)}, []string{"START a n", `ARGS a "x"`, "TEXT_MESSAGE_CHUNK"}},
		{"a message is one of the lane", []Event{other(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"t"}`), other(`{"type":"TEXT_MESSAGE_CHUNK","delta":"x"}`), chunk("", "a", "n", "x"), finish("r")}, []string{"TEXT_MESSAGE_CHUNK", "TEXT_MESSAGE_CHUNK", "START a n", `ARGS a "x"`, "END a", "RUN_FINISHED"}},
		{"activities do not", []Event{chunk("", "a", "n", "x"), snapshot("m"), delta("m"), other(`{"type":"RAW","event":1}`), chunk("", "-", "-", "y")}, []string{"START a n", `ARGS a "x"`, "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "RAW", `ARGS a "y"`}},
		{"a snapshot of messages ends all", []Event{chunk("", "a", "n", "x"), chunk("s", "b", "m", "y"), other(`{"type":"MESSAGES_SNAPSHOT","messages":[]}`)}, []string{"START a n", `ARGS a "x"`, "START b m s", `ARGS b "y"`, "END a", "END b", "MESSAGES_SNAPSHOT"}},
		{"its subagent's end ends it", []Event{chunk("s", "b", "m", "y"), other(`{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}`)}, []string{"START b m s", `ARGS b "y"`, "END b", "SUBAGENT_FINISHED"}},
		{"the spellings do not mix", []Event{chunk("s", "a", "n", "x"), args("a")}, []string{"START a n s", `ARGS a "x"`, "END a", `ARGS a "{}"`}},
		{"an explicit call ends it", []Event{chunk("", "a", "n", "x"), start("b")}, []string{"START a n", `ARGS a "x"`, "END a", "START b n"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := expand(tt.events)
			if diff := cmp.Diff(tt.want, spell(got)); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestExpandKeepsMetadata(t *testing.T) {
	first := chunk("", "a", "n", "x")
	first.Metadata, first.Timestamp, first.RawEvent = Metadata{"k": json.RawMessage("1")}, new(int64(5)), json.RawMessage(`"raw"`)
	more := chunk("", "-", "-", "-")
	more.Metadata = Metadata{"k": json.RawMessage("2")}
	got, err := expand([]Event{first, more})
	want := []Event{
		ToolCallStart{Base: Base{Metadata: first.Metadata}, ToolCallID: "a", ToolCallName: "n"},
		ToolCallArgs{Base: Base{RawEvent: first.RawEvent}, ToolCallID: "a", Delta: "x"},
		ToolCallArgs{Base: Base{Metadata: more.Metadata}, ToolCallID: "a"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestExpandRefuses(t *testing.T) {
	parent := func(id string) ToolCallChunk {
		c := chunk("", "a", "-", "-")
		c.ParentMessageID = &id
		return c
	}
	for _, tt := range []struct {
		want   string
		events []Event
	}{
		{"must have a toolCallId", []Event{chunk("", "-", "n", "x")}},
		{"must have a toolCallName", []Event{chunk("", "a", "-", "x")}},
		{"must have a toolCallId", []Event{chunk("", "a", "n", "x"), chunk("s", "-", "-", "y")}},
		{"the toolCallName is not", []Event{chunk("", "a", "n", "x"), chunk("", "a", "m", "y")}},
		{"the parentMessageId is not", []Event{chunk("", "a", "n", "x"), parent("p")}},
		{"the subagentRunId is not", []Event{chunk("s", "a", "n", "x"), chunk("u", "a", "-", "y")}},
		{"must have a messageId", []Event{other(`{"type":"TEXT_MESSAGE_CHUNK","delta":"x"}`)}},
		{"must have a messageId", []Event{other(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"t"}`), other(`{"type":"REASONING_MESSAGE_CHUNK","delta":"x"}`)}},
		{"must have a messageId", []Event{other(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"t"}`), ToolCallResult{MessageID: "r", ToolCallID: "a"}, other(`{"type":"TEXT_MESSAGE_CHUNK","delta":"x"}`)}},
		{"must have a toolCallId", []Event{chunk("", "a", "n", "x"), other(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"t"}`), chunk("", "-", "-", "y")}},
		{"several streams are open", []Event{chunk("s", "a", "n", "x"), chunk("u", "b", "n", "x"), chunk("", "-", "-", "y")}},
	} {
		_, err := expand(tt.events)
		var sequence *SequenceError
		if !errors.As(err, &sequence) || !strings.Contains(err.Error(), tt.want) || sequence.N != len(tt.events) {
			t.Errorf("error = %v, want %q", err, tt.want)
		}
	}
}

// assemble runs a stream through all three stages.
func assemble(events []Event) ([]ToolCall, error) {
	var (
		x     Expander
		v     Verifier
		a     Assembler
		calls []ToolCall
	)
	for _, e := range events {
		more, err := x.Expand(e)
		if err != nil {
			return nil, err
		}
		for _, e := range more {
			if err := v.Check(e); err != nil {
				return nil, err
			}
			c, err := a.Add(e)
			if err != nil {
				return nil, err
			}
			if c != nil {
				calls = append(calls, *c)
			}
		}
	}
	return calls, v.End()
}

// However the arguments are cut and spelled, the call is the same.
func TestAssembleAnySpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "arguments")
		var pieces []string
		for rest := text; rest != ""; {
			n := rapid.IntRange(0, len(rest)).Draw(t, "cut") // also inside a rune
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		explicit := []Event{run("r"), ToolCallStart{ToolCallID: "a", ToolCallName: "n", ParentMessageID: "p"}}
		first := chunk("", "a", "n", "-")
		first.ParentMessageID = new("p")
		chunked := []Event{run("r"), first}
		for _, p := range pieces {
			explicit = append(explicit, ToolCallArgs{ToolCallID: "a", Delta: p})
			id := rapid.SampledFrom([]string{"a", "-"}).Draw(t, "id")
			more := chunk("", id, "-", "")
			more.Delta = &p
			chunked = append(chunked, more)
		}
		explicit = append(explicit, end("a"), finish("r"))
		chunked = append(chunked, finish("r"))
		want := []ToolCall{{ID: "a", Name: "n", ParentMessageID: "p", Arguments: text}}
		for _, events := range [][]Event{explicit, chunked} {
			got, err := assemble(events)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Fatalf("error %v (-want +got):\n%s", err, diff)
			}
		}
	})
}

func TestAssembleOnlyAtTheEnd(t *testing.T) {
	var a Assembler
	for _, e := range []Event{run("r"), start("a"), args("a"), RunError{}, end("b")} {
		if c, err := a.Add(e); c != nil || err != nil {
			t.Errorf("%s gave %+v, %v", e.EventType(), c, err)
		}
	}
}

func TestAssembleReopened(t *testing.T) {
	got, err := assemble([]Event{run("r"), start("a"), args("a"), end("a"), start("a"), args("a"), end("a"), finish("r"), run("s"), start("b"), end("b"), finish("s")})
	want := []ToolCall{{ID: "a", Name: "n", Arguments: "{}"}, {ID: "a", Name: "n", Arguments: "{}{}", Reopened: true}, {ID: "b", Name: "n"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestAssembleIsBounded(t *testing.T) {
	a := Assembler{MaxArguments: 3}
	var last *ToolCall
	for _, e := range []Event{start("a"), ToolCallArgs{ToolCallID: "a", Delta: "xy"}, ToolCallArgs{ToolCallID: "a", Delta: "zzz"}, ToolCallArgs{ToolCallID: "a", Delta: "z"}, end("a")} {
		c, err := a.Add(e)
		if err != nil {
			t.Fatal(err)
		}
		last = c
	}
	if last.Arguments != "xyzz" {
		t.Errorf("kept %q", last.Arguments)
	}
	var all Assembler
	var err error
	for i := 0; err == nil && i < 100; i++ {
		id := fmt.Sprint(i)
		if _, err = all.Add(start(id)); err == nil {
			_, err = all.Add(ToolCallArgs{ToolCallID: id, Delta: strings.Repeat("x", 1<<20)})
		}
	}
	if err == nil {
		t.Error("100 MiB of arguments were kept")
	}
}

// FuzzStream holds that no stream of bytes makes the stages panic, and that
// what they accept is told the same way twice and can be passed on.
func FuzzStream(f *testing.F) {
	f.Add(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}
{"type":"TOOL_CALL_CHUNK","toolCallId":"a","toolCallName":"n","delta":"{"}
{"type":"TOOL_CALL_CHUNK","delta":"}"}
{"type":"STEP_STARTED","stepName":"s"}
{"type":"STEP_FINISHED","stepName":"s"}
{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"a","content":""}
{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`)
	f.Fuzz(func(t *testing.T, text string) {
		var events []Event
		var d Decoder
		for lines := NewLineReader(strings.NewReader(text)); ; {
			line, err := lines.Next()
			if err != nil {
				break
			}
			e, _, err := d.Decode(line)
			if err != nil {
				return
			}
			if e != nil {
				events = append(events, e)
			}
		}
		first, err := assemble(events)
		second, err2 := assemble(events)
		replay(t, events)
		if diff := cmp.Diff(first, second); diff != "" || (err == nil) != (err2 == nil) {
			t.Errorf("%v, %v (-first +second):\n%s", err, err2, diff)
		}
	})
}

// replay holds what else is made of the events of a stream: they can be
// encoded, also for older peers, and a thread follows them.
func replay(t *testing.T, events []Event) {
	expanded, _ := expand(events)
	thread := NewThread(RunAgentInput{})
	for _, e := range expanded {
		down, _ := Downgrade(e)
		for _, e := range []Event{e, down} {
			raw, err := Encode(e)
			if err != nil {
				t.Fatalf("%#v was decoded and cannot be encoded: %v", e, err)
			}
			if _, _, err := Decode(raw); err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
		}
		if _, err := thread.Add(e); err != nil {
			return
		}
	}
	raw, err := json.Marshal(RunAgentInput{ThreadID: "t", RunID: "r", Messages: thread.Messages(), State: thread.State()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := DecodeInput(raw); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
}
