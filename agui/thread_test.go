package agui

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// follow gives a stream to a thread.
func follow(t *testing.T, in RunAgentInput, events ...Event) (*Thread, []Warning) {
	t.Helper()
	thread := NewThread(in)
	var all []Warning
	for _, e := range events {
		warnings, err := thread.Add(e)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, warnings...)
	}
	return thread, all
}

func TestThreadBecomesWhatAClientHolds(t *testing.T) {
	in := RunAgentInput{Messages: []Message{user("u"), ActivityMessage{ID: "old"}, assistant("m0", "c0")}}
	call := ToolCallStart{ToolCallID: "c1", ToolCallName: "n", ParentMessageID: "m1", Base: Base{Metadata: Metadata{"k": json.RawMessage("1")}}}
	got, warnings := follow(t, in,
		run("r"),
		ToolCallResult{MessageID: "res-c0", ToolCallID: "c0", Content: Content{Text: "ok"}},
		other(`{"type":"REASONING_MESSAGE_START","messageId":"t1","role":"reasoning"}`),
		other(`{"type":"REASONING_MESSAGE_CONTENT","messageId":"t1","delta":"hm"}`),
		other(`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"message","entityId":"t1","encryptedValue":"e"}`),
		other(`{"type":"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"}`),
		other(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"let me "}`),
		other(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"see"}`),
		call, args("c1"), ToolCallEnd{ToolCallID: "c1", Base: Base{Metadata: Metadata{"k": json.RawMessage("2")}}},
		other(`{"type":"REASONING_ENCRYPTED_VALUE","subtype":"tool-call","entityId":"c1","encryptedValue":"f"}`),
		start("c2"), end("c2"),
		snapshot("exec"),
		other(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m2","delta":"wa"}`),
		other(`{"type":"TEXT_MESSAGE_CHUNK","delta":"it"}`),
		answer("c2"), answer("c1"),
		finish("r"),
	)
	answered := assistant("m0", "c0")
	want := []Message{
		user("u"), answered,
		Answered("res-c0", "c0", Content{Text: "ok"}),
		ReasoningMessage{MessageBase: MessageBase{ID: "t1", EncryptedValue: "e"}, Content: "hm"},
		AssistantMessage{MessageBase: MessageBase{ID: "m1"}, Content: new("let me see"), ToolCalls: []ToolCall{
			{ID: "c1", Name: "n", Arguments: "{}", ParentMessageID: "m1", EncryptedValue: "f", Metadata: Metadata{"k": json.RawMessage("2")}},
		}},
		Answered("res-c1", "c1", Content{}),
		AssistantMessage{MessageBase: MessageBase{ID: "c2"}, ToolCalls: []ToolCall{{ID: "c2", Name: "n", ParentMessageID: "c2"}}},
		Answered("res-c2", "c2", Content{}),
		AssistantMessage{MessageBase: MessageBase{ID: "m2"}, Content: new("wait")},
	}
	if diff := cmp.Diff(want, got.Messages()); diff != "" || warnings != nil {
		t.Errorf("warnings %v, messages (-want +got):\n%s", warnings, diff)
	}
	if p := PendingCalls(got.Messages()); p != nil {
		t.Errorf("pending %v", p)
	}
}

func TestThreadTakesASnapshot(t *testing.T) {
	in := RunAgentInput{Messages: []Message{user("u"), ReasoningMessage{MessageBase: MessageBase{ID: "t"}}, assistant("m"), assistant("gone")}}
	got, warnings := follow(t, in,
		other(`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":"new"},{"id":"x","role":"oracle"},{"id":"n","role":"assistant","content":"a"}]}`),
		other(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"n","delta":"b"}`))
	if s := spellIDs(got.Messages(), Message.MessageID); s != "u t n" || len(warnings) != 1 {
		t.Errorf("messages %s, warnings %v", s, warnings)
	}
	if m := got.Messages()[2].(AssistantMessage); *m.Content != "ab" {
		t.Errorf("message %+v", m)
	}
	if _, err := NewThread(in).Add(other(`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user"}]}`)); err == nil || !strings.Contains(err.Error(), "messages[0].content") {
		t.Errorf("error %v", err)
	}
}

func TestThreadKeepsState(t *testing.T) {
	got, warnings := follow(t, RunAgentInput{},
		other(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":1}]}`),
		other(`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/b","value":1}]}`))
	if string(got.State()) != `{"a":1}` || len(warnings) != 1 {
		t.Errorf("state %s, warnings %v", got.State(), warnings)
	}
	got, _ = follow(t, RunAgentInput{State: json.RawMessage(`{"a":1}`)}, other(`{"type":"STATE_SNAPSHOT","snapshot":[2]}`))
	if string(got.State()) != `[2]` {
		t.Errorf("state %s", got.State())
	}
}

func TestThreadBoundsTheWorkOnItsState(t *testing.T) {
	thread, _ := follow(t, RunAgentInput{State: json.RawMessage(`{"a":"` + strings.Repeat("x", 10_000) + `"}`)})
	thread.patched = maxPatched - 15_000
	delta := other(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/b","value":1}]}`)
	if _, err := thread.Add(delta); err != nil {
		t.Fatal(err)
	}
	if _, err := thread.Add(delta); err == nil {
		t.Error("the state is patched without end")
	}
}

func TestThreadIsBounded(t *testing.T) {
	for name, e := range map[string]Event{
		"text":      other(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"` + strings.Repeat("x", 10_000) + `"}`),
		"arguments": ToolCallArgs{ToolCallID: "c", Delta: strings.Repeat("x", 10_000)},
		"metadata":  ToolCallEnd{ToolCallID: "c", Base: Base{Metadata: Metadata{"k": json.RawMessage(strings.Repeat("1", 10_000))}}},
		"a result":  ToolCallResult{MessageID: "r", ToolCallID: "c", Content: Content{Parts: []Part{Text(strings.Repeat("x", 10_000))}}},
		"a history": other(`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":"` + strings.Repeat("x", 10_000) + `"}]}`),
	} {
		thread, _ := follow(t, RunAgentInput{Messages: []Message{assistant("m", "c")}})
		thread.size = maxThread - 10_000
		_, err := thread.Add(e)
		for i := 0; err == nil && i < 2; i++ {
			_, err = thread.Add(e)
		}
		if err == nil {
			t.Errorf("%s: more was kept than is allowed", name)
		}
	}
}

func TestApplyPatch(t *testing.T) {
	for _, tt := range []struct{ doc, patch, want string }{
		{`{"a":1}`, `[{"op":"add","path":"/b","value":null}]`, `{"a":1,"b":null}`},
		{`{"a":[1,2]}`, `[{"op":"add","path":"/a/1","value":9},{"op":"add","path":"/a/-","value":3}]`, `{"a":[1,9,2,3]}`},
		{`{"a":{"b~/":1}}`, `[{"op":"remove","path":"/a/b~0~1"}]`, `{"a":{}}`},
		{`{"a":[1,2,3]}`, `[{"op":"remove","path":"/a/0"},{"op":"replace","path":"/a/1","value":"x"}]`, `{"a":[2,"x"]}`},
		{`{"a":{"b":[1]}}`, `[{"op":"copy","from":"/a","path":"/c"},{"op":"add","path":"/c/b/-","value":2}]`, `{"a":{"b":[1]},"c":{"b":[1,2]}}`},
		{`{"a":1,"b":[]}`, `[{"op":"move","from":"/a","path":"/b/-"}]`, `{"b":[1]}`},
		{`{"a":12345678901234567890}`, `[{"op":"test","path":"/a","value":12345678901234567890}]`, `{"a":12345678901234567890}`},
		{`[1]`, `[{"op":"replace","path":"","value":{}}]`, `{}`},
		{`[[1],[2]]`, `[{"op":"add","path":"/0/-","value":3},{"op":"move","from":"/1/0","path":"/0/0"}]`, `[[2,1,3],[]]`},
	} {
		var ops []PatchOp
		if err := json.Unmarshal([]byte(tt.patch), &ops); err != nil {
			t.Fatal(err)
		}
		if got, err := ApplyPatch(json.RawMessage(tt.doc), ops); err != nil || string(got) != tt.want {
			t.Errorf("%s with %s is %s, %v, want %s", tt.doc, tt.patch, got, err, tt.want)
		}
	}
}

func TestApplyPatchRefuses(t *testing.T) {
	doubles := `[{"op":"add","path":"/a","value":[0]}` + strings.Repeat(`,{"op":"copy","from":"/a","path":"/a/-"}`, 40) + `]`
	for _, tt := range []struct{ patch, want string }{
		{`[{"op":"replace","path":"/x","value":1}]`, "leads nowhere"},
		{`[{"op":"add","path":"/x/y","value":1}]`, "leads nowhere"},
		{`[{"op":"add","path":"/l/4","value":1}]`, "leads nowhere"},
		{`[{"op":"add","path":"/l/01","value":1}]`, "leads nowhere"},
		{`[{"op":"remove","path":"/l/-"}]`, "leads nowhere"},
		{`[{"op":"add","path":"/a/b","value":1}]`, "leads nowhere"},
		{`[{"op":"test","path":"/a","value":2}]`, "tested for"},
		{`[{"op":"move","from":"/l","path":"/l/0"}]`, "into itself"},
		{`[{"op":"copy","from":"/x","path":"/y"}]`, "leads nowhere"},
		{`[{"op":"mend","path":"/a"}]`, "RFC 6902"},
		{doubles, "copies more than"},
		{`[{"op":"add","path":"/l","value":[` + strings.Repeat("0,", 9_999) + `0]}` + strings.Repeat(`,{"op":"add","path":"/l/0","value":0}`, 2000) + `]`, "shifts more than"},
		{`[` + strings.Repeat(`{"op":"remove","path":"/x"},`, maxPatchOps) + `{"op":"remove","path":"/x"}]`, "operations"},
	} {
		doc := json.RawMessage(`{"a":1,"l":[1,2]}`)
		var ops []PatchOp
		if err := json.Unmarshal([]byte(tt.patch), &ops); err != nil {
			t.Fatal(err)
		}
		if got, err := ApplyPatch(doc, ops); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.100s made %.100s, %v, want %q", tt.patch, got, err, tt.want)
		}
	}
}

// FuzzApplyPatch holds that no patch makes it panic or write what is no JSON,
// and that a document that cannot be patched is the caller's still.
func FuzzApplyPatch(f *testing.F) {
	f.Add([]byte(`{"a":[1]}`), []byte(`[{"op":"add","path":"/a/-","value":2}]`))
	f.Fuzz(func(t *testing.T, doc, patch []byte) {
		var ops []PatchOp
		if json.Unmarshal(patch, &ops) != nil || !json.Valid(doc) {
			return
		}
		before := string(doc)
		got, err := ApplyPatch(doc, ops)
		if string(doc) != before {
			t.Error("the document was changed in place")
		}
		if err == nil && !json.Valid(got) {
			t.Errorf("%s with %s is %s", doc, patch, got)
		}
	})
}
