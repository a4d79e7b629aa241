package main

import (
	"bytes"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

const testKey call.Key = "abcdefghijklmnopqrstuvwxyz"

// On a terminal the line updates in place, fits into its width, and is gone
// when the result comes.
func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := &progress{term: &terminal{err: &out, width: 30}}
	first := call.Activity{ToolName: "count", Status: call.StatusRunning, Attempt: 1}
	next := first
	next.ElapsedMs = 1260
	next.Progress = &call.Progress{Current: 2.5, Total: 10, Message: "a long word\x1b[2J about it"}
	delta, ok := next.Delta(testKey, first)
	if !ok {
		t.Fatal("no delta")
	}
	for _, ev := range []agui.Event{first.Snapshot(testKey), delta} {
		if err := p.show(client.Event{Event: ev}); err != nil {
			t.Fatal(err)
		}
	}
	p.end("count", "", &call.Result{})
	want := "\r\x1b[2Kcount: running  0s" + "\r\x1b[2Kcount: running 2.5/10 a long…" + "\r\x1b[2Kcount: succeeded\n"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestHarmless(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":            "plain\ttext\n",
		"\x1b]0;title\x07":         "�]0;title�",
		"over\rwritten":            "over�written",
		"\u009b31m":                "�31m",
		"evil\u202etxt.exe":        "evil�txt.exe",
		"not \xff UTF-8":           "not � UTF-8",
		"snow ☃ and 日本":            "snow ☃ and 日本",
		"bell\a, del\x7f, nul\x00": "bell�, del�, nul�",
	} {
		if got := harmless(in); got != want {
			t.Errorf("harmless(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestResultOnATerminalIsHarmless(t *testing.T) {
	parts := []agui.Part{agui.Text("red \x1b[31m")}
	for raw, want := range map[bool]string{true: "red \x1b[31m\n", false: "red �[31m\n"} {
		var out bytes.Buffer
		if err := writeParts(t.Context(), &terminal{out: &out, raw: raw}, parts, &saver{}); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != want {
			t.Errorf("raw %v: got %q, want %q", raw, got, want)
		}
	}
}

func TestLastLine(t *testing.T) {
	for in, want := range map[string]string{"": "", "one": "one", "one\ntwo\n\n": "two", "10%\r20%\r": "20%"} {
		if got := lastLine(in); got != want {
			t.Errorf("lastLine(%q) = %q, want %q", in, got, want)
		}
	}
}
