package agui

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     Event
		warnings []string
	}{
		{
			"start", `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"sh","parentMessageId":"m","timestamp":5,"metadata":{"a":null}}`,
			ToolCallStart{Base: Base{Timestamp: new(int64(5)), Metadata: Metadata{"a": json.RawMessage("null")}}, ToolCallID: "c", ToolCallName: "sh", ParentMessageID: "m"},
			nil,
		},
		{"empty delta", `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":""}`, ToolCallArgs{ToolCallID: "c"}, nil},
		{"chunk", `{"type":"TOOL_CALL_CHUNK","delta":"x"}`, ToolCallChunk{Delta: new("x")}, nil},
		{
			"text result", `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":"hi","role":"tool"}`,
			ToolCallResult{MessageID: "m", ToolCallID: "c", Content: Content{Text: "hi"}, Role: "tool"},
			nil,
		},
		{
			"no parts", `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[]}`,
			ToolCallResult{MessageID: "m", ToolCallID: "c", Content: Content{Parts: []Part{}}},
			nil,
		},
		{
			"parts of tomorrow are left out", `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"hologram","text":5},{"type":"text","text":"a","font":"b"},{"type":"image","source":{"type":"cloud"}},{"type":"image","source":{"type":"url","value":"u","x":1}}]}`,
			ToolCallResult{MessageID: "m", ToolCallID: "c", Content: Content{Parts: []Part{Text("a"), Media(PartImage, Source{Type: SourceURL, Value: "u"})}}},
			[]string{"content[0]", "content[1].font", "content[2]", "content[3].source.x"},
		},
		{
			"unknown members are left out", `{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":"","error":"e","isError":true}`,
			ToolCallResult{MessageID: "m", ToolCallID: "c"},
			[]string{"error", "isError"},
		},
		{"another case is another member", `{"type":"TOOL_CALL_END","toolCallId":"c","TOOLCALLID":"d"}`, ToolCallEnd{ToolCallID: "c"}, []string{"TOOLCALLID"}},
		{
			"finished", `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"success","pendingToolCallIds":["a"]}}`,
			RunFinished{ThreadID: "t", RunID: "r", Outcome: &Outcome{Type: "success", PendingToolCallIDs: []string{"a"}}},
			nil,
		},
		{
			"cancelled has no list", `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"cancelled","pendingToolCallIds":["a"]}}`,
			RunFinished{ThreadID: "t", RunID: "r", Outcome: &Outcome{Type: "cancelled"}},
			[]string{"outcome.pendingToolCallIds"},
		},
		{
			"outcome of tomorrow", `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"paused","pendingToolCallIds":5}}`,
			RunFinished{ThreadID: "t", RunID: "r"},
			[]string{"outcome"},
		},
		{
			"usage", `{"type":"RUN_ERROR","message":"m","usage":[{"model":"x","inputTokens":0,"cost":1},{}]}`,
			RunError{Message: "m", Usage: []TokenUsage{{Model: "x", InputTokens: new(int64(0))}, {}}},
			[]string{"usage[0].cost"},
		},
		{
			"interrupts", `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"","toolCallId":"c","responseSchema":{"type":"object"},"x":1}]}}`,
			RunFinished{ThreadID: "t", RunID: "r", Outcome: &Outcome{Type: "interrupt", Interrupts: []Interrupt{{ID: "i", ToolCallID: "c", ResponseSchema: json.RawMessage(`{"type":"object"}`)}}}},
			[]string{"outcome.interrupts[0].x"},
		},
		{"run events belong to no subagent", `{"type":"RUN_ERROR","message":"m","subagentRunId":"s","runId":"r"}`, RunError{Message: "m"}, []string{"runId", "subagentRunId"}},
		{
			"delta", `{"type":"ACTIVITY_DELTA","messageId":"m","activityType":"a","patch":[{"op":"add","path":"/x","value":null},{"op":"remove","path":""}]}`,
			ActivityDelta{MessageID: "m", ActivityType: "a", Patch: []PatchOp{{Op: "add", Path: "/x", Value: json.RawMessage("null")}, {Op: "remove"}}},
			nil,
		},
		{"custom null", `{"type":"CUSTOM","name":"n","value":null}`, Custom{Name: "n", Value: json.RawMessage("null")}, nil},
		{"relayed", `{"type":"STATE_SNAPSHOT", "snapshot":{} }`, Other{Type: "STATE_SNAPSHOT", JSON: json.RawMessage(`{"type":"STATE_SNAPSHOT", "snapshot":{} }`)}, nil},
		{"relayed whole", `{"type":"STEP_STARTED","stepName":"s","x":1}`, Other{Type: "STEP_STARTED", JSON: json.RawMessage(`{"type":"STEP_STARTED","stepName":"s","x":1}`)}, []string{"x"}},
		{"event of tomorrow", `{"type":"TOOL_CALL_PROGRESS"}`, nil, []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, warnings, err := Decode([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
			var fields []string
			for _, w := range warnings {
				fields = append(fields, w.Field)
			}
			if diff := cmp.Diff(tt.warnings, fields); diff != "" {
				t.Errorf("warned about (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tt := range []struct{ in, field, message string }{
		{``, "", "expected a JSON object"},
		{`null`, "", "expected a JSON object"},
		{`[]`, "", "expected a JSON object"},
		{`{"type":"RUN_ERROR"`, "", "expected a JSON object"},
		{`{"type":"RUN_ERROR","message":"a"}{}`, "", "expected a JSON object"},
		{`{}`, "type", "name of an event type"},
		{`{"type":7}`, "type", "name of an event type"},
		{`{"type":""}`, "type", "name of an event type"},
		{`{"type":"TOOL_CALL_END"}`, "toolCallId", "is missing"},
		{`{"type":"TOOL_CALL_END","toolCallId":""}`, "toolCallId", "not empty"},
		{`{"type":"TOOL_CALL_END","toolCallId":null}`, "toolCallId", "not empty"},
		{`{"type":"TOOL_CALL_END","toolCallId":"c","subagentRunId":null}`, "subagentRunId", "expected a string"},
		{`{"type":"STATE_SNAPSHOT","snapshot":{},"subagentRunId":null}`, "subagentRunId", "expected a string"},
		{`{"type":"TOOL_CALL_END","toolCallId":"c","timestamp":1.5}`, "timestamp", "an integer"},
		{`{"type":"TOOL_CALL_END","toolCallId":"c","timestamp":"1"}`, "timestamp", "an integer"},
		{`{"type":"TOOL_CALL_END","toolCallId":"c","timestamp":9007199254740992}`, "timestamp", "53 bits"},
		{`{"type":"TOOL_CALL_END","toolCallId":"c","metadata":[]}`, "metadata", "an object"},
		{`{"type":"TOOL_CALL_END","toolCallId":"c","rawEvent":null}`, "rawEvent", "but null"},
		{`{"type":"TOOL_CALL_ARGS","toolCallId":"c"}`, "delta", "is missing"},
		{`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":{}}`, "content", "a string or a list"},
		{`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":["a"]}`, "content", "a string or a list"},
		{`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"text":"a"}]}`, "content[0].type", "a string"},
		{`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"text"}]}`, "content[0].text", "is missing"},
		{`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"text","text":1}]}`, "content[0].text", "a string"},
		{`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"image"}]}`, "content[0].source", "is missing"},
		{`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"image","source":{"type":"data","value":""}}]}`, "content[0].source.mimeType", "is missing"},
		{`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":"","role":"user"}`, "role", `"tool"`},
		{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":"success"}`, "outcome", "an object"},
		{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{}}`, "outcome.type", "a string"},
		{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"success","pendingToolCallIds":[1]}}`, "outcome.pendingToolCallIds", "a list of strings"},
		{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[]}}`, "outcome.interrupts", "at least one"},
		{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i"}]}}`, "outcome.interrupts[0].reason", "is missing"},
		{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","usage":[{"inputTokens":-1}]}`, "usage[0].inputTokens", "a count"},
		{`{"type":"RUN_FINISHED","threadId":"t","runId":"r","usage":{}}`, "usage", "a list of objects"},
		{`{"type":"ACTIVITY_SNAPSHOT","messageId":"m","activityType":"a","content":[]}`, "content", "an object"},
		{`{"type":"ACTIVITY_DELTA","messageId":"m","activityType":"a","patch":[{"op":"add","path":"/x"}]}`, "patch[0]", "value is missing"},
		{`{"type":"ACTIVITY_DELTA","messageId":"m","activityType":"a","patch":[{"op":"mend","path":"/x"}]}`, "patch[0]", "RFC 6902"},
		{`{"type":"ACTIVITY_DELTA","messageId":"m","activityType":"a","patch":[{"op":"remove","path":"x"}]}`, "patch[0]", "JSON pointer"},
		{`{"type":"CUSTOM","name":"n"}`, "value", "is missing"},
		{`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m"}`, "delta", "is missing"},
		{`{"type":"TEXT_MESSAGE_START","messageId":"m","role":"tool"}`, "role", `"assistant" or`},
		{`{"type":"SUBAGENT_STARTED","name":"n"}`, "subagentRunId", "is missing"},
		{`{"type":"MESSAGES_SNAPSHOT","messages":{}}`, "messages", "a list of objects"},
		{`{"type":"RUN_ERROR","message":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, "", "nested deeper"},
		{`{"type":"RUN_ERROR","message":"` + strings.Repeat("x", MaxEvent) + `"}`, "", "at most"},
	} {
		name := tt.in[:min(len(tt.in), 100)]
		t.Run(name, func(t *testing.T) {
			var d Decoder
			if _, _, err := d.Decode([]byte(`{"type":"RUN_ERROR","message":""}`)); err != nil {
				t.Fatal(err)
			}
			ev, _, err := d.Decode([]byte(tt.in))
			var malformed *MalformedError
			if !errors.As(err, &malformed) || ev != nil {
				t.Fatalf("event %v, error %v", ev, err)
			}
			if malformed.N != 2 || malformed.Field != tt.field || !strings.Contains(malformed.Message, tt.message) {
				t.Errorf("error = %v (field %q), want field %q and %q", err, malformed.Field, tt.field, tt.message)
			}
		})
	}
}

func TestDecodeBoundsWarnings(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `,"x%d":1`, i)
	}
	_, warnings, err := Decode([]byte(`{"type":"RUN_ERROR","message":""` + b.String() + `}`))
	if err != nil || len(warnings) != 100 {
		t.Errorf("%d warnings, %v", len(warnings), err)
	}
}

// events are one of each type, as the fleet emits them.
var events = []Event{
	RunStarted{ThreadID: "t", RunID: "r", ProtocolVersion: "1.0", Input: json.RawMessage(`{}`)},
	ToolCallStart{ToolCallID: "c", ToolCallName: "n"},
	ToolCallArgs{ToolCallID: "c", Delta: "{\"a\":\n1}"},
	ToolCallEnd{ToolCallID: "c"},
	ToolCallChunk{ToolCallID: new("c"), ToolCallName: new("n"), Delta: new("")},
	ActivitySnapshot{MessageID: "m", ActivityType: "a", Content: json.RawMessage(`{"x":1}`), Replace: new(false)},
	ActivityDelta{MessageID: "m", ActivityType: "a", Patch: []PatchOp{{Op: "add", Path: "/x", Value: json.RawMessage("2")}}},
	ToolCallResult{MessageID: "res", ToolCallID: "c", Content: Content{Text: "data: {\"type\":\"RUN_FINISHED\"}\n\n"}, Role: "tool"},
	ToolCallResult{MessageID: "res", ToolCallID: "c", Content: Content{Parts: []Part{Text("a"), MediaOf([]byte("%PDF-"))}}},
	Custom{Name: "toolfleet.x", Value: json.RawMessage("null")},
	RunFinished{ThreadID: "t", RunID: "r", Outcome: &Outcome{Type: "success", PendingToolCallIDs: []string{"d"}}},
	RunFinished{ThreadID: "t", RunID: "r", Outcome: &Outcome{Type: "interrupt", Interrupts: []Interrupt{{ID: "i", Reason: "approval"}}}, Usage: []TokenUsage{{Provider: "p"}}},
	RunError{Message: "m", Code: "c"},
}

func TestEncodeDecode(t *testing.T) {
	for _, want := range events {
		raw, err := Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, warnings, err := Decode(raw)
		if err != nil || warnings != nil {
			t.Fatalf("%s: %v, %v", raw, warnings, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, e := range events {
		raw, err := Encode(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":[{"type":"image","source":{"type":"cloud"}}],"x":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkSplit(t, data)
		ev, _, err := Decode(data)
		if err != nil || ev == nil {
			return
		}
		if _, ok := ev.(Other); ok {
			return
		}
		raw, err := Encode(ev)
		if err != nil {
			t.Fatalf("%#v was decoded and cannot be encoded: %v", ev, err)
		}
		again, warnings, err := Decode(raw)
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%s: %v, %v", raw, warnings, err)
		}
		if raw2, err := Encode(again); err != nil || string(raw2) != string(raw) {
			t.Errorf("%s became %s, %v", raw, raw2, err)
		}
	})
}

// checkSplit holds split against encoding/json.
func checkSplit(t *testing.T, data []byte) {
	t.Helper()
	got := split(data)
	var want map[string]json.RawMessage
	if json.Unmarshal(data, &want) != nil {
		return // it must not panic
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q (-encoding/json +split):\n%s", data, diff)
	}
}

func TestSplit(t *testing.T) {
	for _, in := range []string{
		`{}`, ` { } `, `{"a":1}`, "\n{\t\"a\" : -1.5e3 , \"b\":true,\"c\":null\r}", `{"a":{"b":[1,{"c":"}]"}]},"d":[]}`,
		`{"a":"\\","b":"\"","\u0061":2,"a\"b":3}`, `{"é\ud800":"\u2028"}`, "{\"\xff\":\"\xff\"}", `null`, `[]`, `"a"`, `7`, ``, `{`, `{"a"`, `{"a":`, `{"a":"b`, `{"a":[1`, `{,}`, `{"a":}`, `{"a" 1}`, "{\"a\":\"\\",
	} {
		checkSplit(t, []byte(in))
	}
}
