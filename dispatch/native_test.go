package dispatch_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch"
)

const key = call.Key("abcdefghijklmnopqrstuvwxyz")

// native converts a run and returns one JSON object a line.
func native(t *testing.T, n *dispatch.Native, evs ...agui.Event) []string {
	t.Helper()
	var lines []string
	for _, ev := range evs {
		out, ok, err := n.Convert(ev)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			continue
		}
		line, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	return lines
}

func TestNativeView(t *testing.T) {
	queued := call.Activity{ToolCallID: "c1", ToolName: "count", Status: call.StatusQueued}
	running := call.Activity{ToolCallID: "c1", ToolName: "count", Status: call.StatusRunning, Attempt: 1}
	said := running
	said.Seq, said.Output, said.Progress = 1, "3…", &call.Progress{Current: 1, Total: 3, Message: "counting"}
	delta, _ := said.Delta(key, running)
	ended := said
	ended.Status, ended.Seq = call.StatusSucceeded, 2
	last, _ := ended.Delta(key, said)
	result := call.Result{Content: []agui.Part{agui.Text("done")}}.Event(key, "c1")

	head := []agui.Event{
		agui.RunStarted{ThreadID: "t", RunID: "r"},
		agui.ToolCallStart{ToolCallID: "c1", ToolCallName: "count"},
		agui.ToolCallArgs{ToolCallID: "c1", Delta: `{"fr`},
		agui.ToolCallArgs{ToolCallID: "c1", Delta: `om":3}`},
		agui.ToolCallEnd{ToolCallID: "c1"},
	}
	tail := []agui.Event{said.Snapshot(key), last, result, agui.RunFinished{ThreadID: "t", RunID: "r"}}
	var n dispatch.Native
	got := native(t, &n, append(append(head, queued.Snapshot(key), running.Snapshot(key), delta),
		// The stream broke here, and a resumed one begins again.
		append(append([]agui.Event{}, head...), tail...)...)...)
	want := []string{
		`{"type":"tool_execution_start","tool_call_id":"c1","tool_name":"count","args":{"from":3}}`,
		`{"type":"tool_execution_update","tool_call_id":"c1","tool_name":"count","partial_result":{"call_id":"c1","content":[{"type":"text","text":"3…",` +
			`"metadata":{"toolfleet.activity":{"toolCallId":"c1","toolName":"count","status":"running","attempt":1,"seq":1,"progress":{"current":1,"total":3,"message":"counting"},"elapsedMs":0}}}],"is_error":false}}`,
		`{"type":"tool_execution_end","tool_call_id":"c1","tool_name":"count","result":{"call_id":"c1","content":[{"type":"text","text":"done"}],"is_error":false},"is_error":false}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNativeErrorResultAndOddArguments(t *testing.T) {
	var n dispatch.Native
	failed := call.Failure(call.KindTimeout, "Too slow.")
	got := native(t, &n,
		agui.ToolCallStart{ToolCallID: "c1", ToolCallName: "count"},
		agui.ToolCallArgs{ToolCallID: "c1", Delta: `{oops`},
		agui.ToolCallEnd{ToolCallID: "c1"},
		failed.Event(key, "c1"),
		failed.Event(key, "c1"), // a second one is no second end
	)
	want := []string{
		`{"type":"tool_execution_start","tool_call_id":"c1","tool_name":"count","args":"{oops"}`,
		`{"type":"tool_execution_end","tool_call_id":"c1","tool_name":"count","result":{"call_id":"c1","content":[{"type":"text","text":"Too slow."}],"is_error":true,` +
			`"error":{"kind":"timeout","message":"Too slow.","attempt":0,"retryable":true}},"is_error":true}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNativeBoundsWhatAServerSends(t *testing.T) {
	var n dispatch.Native
	n.Convert(agui.ToolCallStart{ToolCallID: "c1"})
	piece := agui.ToolCallArgs{ToolCallID: "c1", Delta: strings.Repeat("x", call.MaxArguments/2+1)}
	if _, _, err := n.Convert(piece); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.Convert(piece); err == nil {
		t.Error("arguments without end were taken")
	}
}

func ExampleNative() {
	var n dispatch.Native
	for _, ev := range []agui.Event{
		agui.ToolCallStart{ToolCallID: "c1", ToolCallName: "word-count"},
		agui.ToolCallArgs{ToolCallID: "c1", Delta: `{"text":"to be"}`},
		agui.ToolCallEnd{ToolCallID: "c1"},
		call.Result{Content: []agui.Part{agui.Text("2")}}.Event(key, "c1"),
	} {
		if out, ok, err := n.Convert(ev); err == nil && ok {
			fmt.Println(out.Type, out.ToolCallID)
		}
	}
	// Output:
	// tool_execution_start c1
	// tool_execution_end c1
}
