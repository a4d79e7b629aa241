package agui

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// full is an input with everything in it.
const full = `{
	"threadId": "t", "runId": "r", "protocolVersion": "1.0", "parentRunId": "p", "state": {"a": null},
	"messages": [
		{"id": "m1", "role": "developer", "content": "be brief", "name": "ops"},
		{"id": "m2", "role": "system", "content": ""},
		{"id": "m3", "role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "source": {"type": "file", "value": "h", "provider": "openai"}}]},
		{"id": "m4", "role": "assistant", "content": "", "subagentRunId": "s", "toolCalls": [
			{"id": "c1", "type": "function", "function": {"name": "n", "arguments": "{oops"}, "metadata": {"k": null}, "encryptedValue": "e"}]},
		{"id": "m5", "role": "tool", "toolCallId": "c1", "content": "", "error": "broken", "metadata": {"toolfleet.error": {"kind": "crashed"}}},
		{"id": "m6", "role": "activity", "activityType": "a", "content": {"x": 1}},
		{"id": "m7", "role": "reasoning", "content": "hm", "encryptedValue": "e"},
		{"id": "m8", "role": "assistant"}
	],
	"tools": [{"name": "pick", "description": "", "parameters": true, "metadata": {"a": 1}}],
	"context": [{"description": "d", "value": "v"}],
	"forwardedProps": [1],
	"resume": [{"interruptId": "i", "status": "resolved", "payload": 1}]
}`

func TestDecodeInput(t *testing.T) {
	got, warnings, err := DecodeInput([]byte(full))
	if err != nil || warnings != nil {
		t.Fatal(warnings, err)
	}
	want := RunAgentInput{
		ThreadID: "t", RunID: "r", ProtocolVersion: "1.0", ParentRunID: "p", State: json.RawMessage(`{"a": null}`),
		Messages: []Message{
			DeveloperMessage{MessageBase: MessageBase{ID: "m1"}, Name: "ops", Content: "be brief"},
			SystemMessage{MessageBase: MessageBase{ID: "m2"}},
			UserMessage{MessageBase: MessageBase{ID: "m3"}, Content: Content{Parts: []Part{Text("look"), Media(PartImage, Source{Type: SourceFile, Value: "h", Provider: "openai"})}}},
			AssistantMessage{MessageBase: MessageBase{ID: "m4", SubagentRunID: "s"}, Content: new(""), ToolCalls: []ToolCall{
				{ID: "c1", Name: "n", Arguments: "{oops", ParentMessageID: "m4", SubagentRunID: "s", EncryptedValue: "e", Metadata: Metadata{"k": json.RawMessage("null")}},
			}},
			ToolMessage{MessageBase: MessageBase{ID: "m5", Metadata: Metadata{"toolfleet.error": json.RawMessage(`{"kind":"crashed"}`)}}, ToolCallID: "c1", Error: "broken"},
			ActivityMessage{ID: "m6", ActivityType: "a", Content: json.RawMessage(`{"x":1}`)},
			ReasoningMessage{MessageBase: MessageBase{ID: "m7", EncryptedValue: "e"}, Content: "hm"},
			AssistantMessage{MessageBase: MessageBase{ID: "m8"}},
		},
		Tools:          []Tool{{Name: "pick", Parameters: json.RawMessage("true"), Metadata: Metadata{"a": json.RawMessage("1")}}},
		Context:        []Context{{Description: "d", Value: "v"}},
		ForwardedProps: json.RawMessage("[1]"),
		Resume:         []ResumeEntry{{InterruptID: "i", Status: "resolved", Payload: json.RawMessage("1")}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("input (-want +got):\n%s", diff)
	}
	if got.Legacy() || !got.Advertises("pick") || got.Advertises("n") {
		t.Errorf("legacy %v", got.Legacy())
	}

	// What is written is the same input again, for an agent behind us.
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	again, warnings, err := DecodeInput(raw)
	if err != nil || warnings != nil {
		t.Fatalf("%s: %v, %v", raw, warnings, err)
	}
	compact := cmp.Transformer("compact", func(raw json.RawMessage) string { return strings.ReplaceAll(string(raw), " ", "") })
	if diff := cmp.Diff(got, again, compact); diff != "" {
		t.Errorf("%s (-want +got):\n%s", raw, diff)
	}
}

func TestDecodeInputOfClients(t *testing.T) {
	for body, legacy := range map[string]bool{
		`{"threadId":"t","runId":"r","protocolVersion":"1.0","state":{},"messages":[],"tools":[],"context":[],"forwardedProps":{}}`: false,
		`{"threadId":"t","runId":"r","state":{},"messages":[],"tools":[],"context":[],"forwardedProps":{}}`:                         true,
		`{"threadId":"t","runId":"r","messages":[]}`:                         true,
		`{"threadId":"t","runId":"r","messages":[],"protocolVersion":"0.9"}`: true,
	} {
		in, warnings, err := DecodeInput([]byte(body))
		if err != nil || warnings != nil || in.Legacy() != legacy || in.ThreadID != "t" || in.RunID != "r" {
			t.Errorf("%s: %+v, %v, %v", body, in, warnings, err)
		}
	}
	raw, err := json.Marshal(RunAgentInput{ThreadID: "t", RunID: "r"})
	if err != nil || string(raw) != `{"threadId":"t","runId":"r","messages":[]}` {
		t.Errorf("an empty input is %s, %v", raw, err)
	}
}

// input makes an input around members and messages.
func input(members, messages string) string {
	return `{"threadId":"t","runId":"r"` + members + `,"messages":[` + messages + `]}`
}

func TestDecodeInputLeavesOut(t *testing.T) {
	for _, tt := range []struct{ in, field string }{
		{input(`,"answer":42`, ``), "answer"},
		{input(`,"protocolVersion":"1.7"`, ``), "protocolVersion"},
		{input(`,"protocolVersion":"latest"`, ``), "protocolVersion"},
		{input(`,"tools":[{"name":"n","description":"","strict":true}]`, ``), "tools[0].strict"},
		{input(`,"context":[{"description":"","value":"","x":1}]`, ``), "context[0].x"},
		{input(`,"resume":[{"interruptId":"i","status":"cancelled","x":1}]`, ``), "resume[0].x"},
		{input(``, `{"id":"m","role":"oracle","content":7}`), "messages[0]"},
		{input(``, `{"id":"m","role":"tool","toolCallId":"c","content":"","name":"n"}`), "messages[0].name"},
		{input(``, `{"id":"m","role":"user","content":[{"type":"binary","data":"x"}]}`), "messages[0].content[0]"},
		{input(``, `{"id":"m","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":"","x":1}}]}`), "messages[0].toolCalls[0].function.x"},
		{input(``, `{"id":"m","role":"assistant","toolCalls":[{"id":"c","type":"function","index":0,"function":{"name":"n","arguments":""}}]}`), "messages[0].toolCalls[0].index"},
		{input(``, `{"id":"m","role":"activity","activityType":"a","content":{},"encryptedValue":"e"}`), "messages[0].encryptedValue"},
	} {
		_, warnings, err := DecodeInput([]byte(tt.in))
		if err != nil || len(warnings) != 1 || warnings[0].Field != tt.field {
			t.Errorf("%s: warnings %v, %v, want one about %s", tt.in, warnings, err, tt.field)
		}
	}
}

func TestDecodeInputRefuses(t *testing.T) {
	for _, tt := range []struct{ in, field string }{
		{`[]`, ""},
		{`{"runId":"r","messages":[]}`, "threadId"},
		{`{"threadId":"","runId":"r","messages":[]}`, "threadId"},
		{`{"threadId":"t","runId":null,"messages":[]}`, "runId"},
		{`{"threadId":"t","runId":"r"}`, "messages"},
		{`{"threadId":"t","runId":"r","messages":["hi"]}`, "messages"},
		{input(`,"protocolVersion":"2.0"`, ``), "protocolVersion"},
		{input(`,"protocolVersion":1`, ``), "protocolVersion"},
		{input(`,"state":null`, ``), "state"},
		{input(`,"tools":{}`, ``), "tools"},
		{input(`,"tools":[{"name":"n"}]`, ``), "tools[0].description"},
		{input(`,"tools":[{"name":"","description":""}]`, ``), "tools[0].name"},
		{input(`,"context":[{"description":"d"}]`, ``), "context[0].value"},
		{input(`,"resume":[{"interruptId":"i","status":"done"}]`, ``), "resume[0].status"},
		{input(``, `{"id":"m"}`), "messages[0].role"},
		{input(``, `{"role":"user","content":""}`), "messages[0].id"},
		{input(``, `{"id":"m","role":"user"}`), "messages[0].content"},
		{input(``, `{"id":"m","role":"user","content":[{"type":"text"}]}`), "messages[0].content[0].text"},
		{input(``, `{"id":"m","role":"tool","content":""}`), "messages[0].toolCallId"},
		{input(``, `{"id":"m","role":"tool","content":"","toolCallId":"c","error":null}`), "messages[0].error"},
		{input(``, `{"id":"m","role":"system","content":[]}`), "messages[0].content"},
		{input(``, `{"id":"m","role":"assistant","content":null}`), "messages[0].content"},
		{input(``, `{"id":"m","role":"assistant","toolCalls":[{"id":"c","type":"tool","function":{"name":"n","arguments":""}}]}`), "messages[0].toolCalls[0].type"},
		{input(``, `{"id":"m","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"n","arguments":{}}}]}`), "messages[0].toolCalls[0].function.arguments"},
		{input(``, `{"id":"m","role":"activity","activityType":"a","content":[]}`), "messages[0].content"},
		{input(`,"state":`+strings.Repeat("[", 200)+strings.Repeat("]", 200), ``), ""},
		{input(``, `{"id":"`+strings.Repeat("m", MaxInput)+`","role":"user","content":""}`), ""},
	} {
		_, _, err := DecodeInput([]byte(tt.in))
		var malformed *MalformedError
		if !errors.As(err, &malformed) || malformed.Field != tt.field || !strings.HasPrefix(err.Error(), "agui: input: ") {
			t.Errorf("%.200s: error %v, want one about %q", tt.in, err, tt.field)
		}
	}
}

func FuzzDecodeInput(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(input(`,"tools":[{"name":"n","description":"d"}]`, `{"id":"m","role":"oracle"}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		in, _, err := DecodeInput(data)
		if err != nil {
			return
		}
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatalf("%#v was decoded and cannot be encoded: %v", in, err)
		}
		again, _, err := DecodeInput(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if raw2, err := json.Marshal(again); err != nil || string(raw2) != string(raw) {
			t.Errorf("%s became %s, %v", raw, raw2, err)
		}
		var v Verifier
		v.Seed(in.Messages)
		for _, c := range PendingCalls(in.Messages) {
			if state := v.calls[c.ID]; state == nil || state.answered {
				t.Errorf("the pending call %q is seeded as %+v", c.ID, state)
			}
		}
	})
}
