package call

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/agui"
)

// Keys stand in logs and URLs: they may never change.
func TestKeyIsForEver(t *testing.T) {
	const want = Key("6funueffkf762ifmbnylz7ssqy")
	if got := MakeKey("default", "thread-1", "msg-1", "call-1"); got != want {
		t.Errorf("key = %s, want %s", got, want)
	}
	if c := (Call{Tenant: "default", ThreadID: "thread-1", Scope: "msg-1", ToolCallID: "call-1", RunID: "any"}); c.Key() != want {
		t.Errorf("key of the call = %s", c.Key())
	}
	if want.ResultMessageID() != "res-"+string(want) || want.ActivityMessageID() != "exec-"+string(want) {
		t.Errorf("message ids %s and %s", want.ResultMessageID(), want.ActivityMessageID())
	}
}

func TestKeysDiffer(t *testing.T) {
	id := rapid.String()
	rapid.Check(t, func(t *rapid.T) {
		a := [4]string{id.Draw(t, "a0"), id.Draw(t, "a1"), id.Draw(t, "a2"), id.Draw(t, "a3")}
		b := [4]string{id.Draw(t, "b0"), id.Draw(t, "b1"), id.Draw(t, "b2"), id.Draw(t, "b3")}
		if rapid.Bool().Draw(t, "shift") { // the same text, cut at another place
			whole := []rune(a[0] + a[1])
			cut := rapid.IntRange(0, len(whole)).Draw(t, "cut")
			b = [4]string{string(whole[:cut]), string(whole[cut:]), a[2], a[3]}
		}
		ka, kb := MakeKey(a[0], a[1], a[2], a[3]), MakeKey(b[0], b[1], b[2], b[3])
		if (a == b) != (ka == kb) {
			t.Fatalf("%q has key %s, %q has key %s", a, ka, b, kb)
		}
		if parsed, err := ParseKey(string(ka)); err != nil || parsed != ka {
			t.Fatalf("ParseKey(%s) = %s, %v", ka, parsed, err)
		}
	})
}

func TestParseKeyRefuses(t *testing.T) {
	key := string(MakeKey("a", "b", "c", "d"))
	for _, s := range []string{"", key[1:], key + "a", strings.ToUpper(key), key[1:] + "1", key[1:] + ".", key[1:] + "*", key + "\n"} {
		if _, err := ParseKey(s); err == nil {
			t.Errorf("%q is a key", s)
		}
	}
}

func TestValidate(t *testing.T) {
	sound := Call{Tenant: "default", ThreadID: "t", RunID: "r", Scope: "s", ToolCallID: "c", Tool: "x"}
	if err := sound.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Call){
		"tenant must match":              func(c *Call) { c.Tenant = "a.b" },
		"threadId must not be empty":     func(c *Call) { c.ThreadID = "" },
		"scope is longer than 256 bytes": func(c *Call) { c.Scope = strings.Repeat("x", 257) },
		"toolCallId is not UTF-8":        func(c *Call) { c.ToolCallID = "\xff" },
		"toolCallId has a control char":  func(c *Call) { c.ToolCallID = "a\x00b" },
		"runId has a control character":  func(c *Call) { c.RunID = "a\r\nb" },
		"tool must be a name":            func(c *Call) { c.Tool = "" },
		"timeout must be between":        func(c *Call) { c.Timeout = MaxTimeout + 1 },
		"between 0 and 1h":               func(c *Call) { c.Timeout = math.MinInt64 },
		"priority must be":               func(c *Call) { c.Priority = "urgent" },
	} {
		c := sound
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	err := (Call{Timeout: -1}).Validate()
	if n := len(strings.Split(err.Error(), "\n")); n != 7 {
		t.Errorf("%d faults are told, want 7: %v", n, err)
	}
}

// The table is closed and total: every kind has one row, every row an end.
func TestEnds(t *testing.T) {
	seen := map[Kind]bool{}
	for _, e := range Ends {
		if seen[e.Kind] {
			t.Errorf("kind %q stands twice", e.Kind)
		}
		seen[e.Kind] = true
		if !e.Status.Ended() || e.Cause == "" {
			t.Errorf("row %+v is no end", e)
		}
		if (e.Kind == "") != (e.Status == StatusSucceeded) {
			t.Errorf("row %+v", e)
		}
		if EndOf(e.Kind) != e {
			t.Errorf("EndOf(%q) = %+v", e.Kind, EndOf(e.Kind))
		}
	}
	if EndOf("of-tomorrow").Kind != KindInternal {
		t.Errorf("an unknown kind reads as %q", EndOf("of-tomorrow").Kind)
	}
	for _, s := range []Status{StatusQueued, StatusStarting, StatusRunning, ""} {
		if s.Ended() {
			t.Errorf("%q is an end", s)
		}
	}
}

func TestResultWithoutContentIsAnEmptyList(t *testing.T) {
	raw, err := json.Marshal(map[string]any{"value": Result{CallID: "<c>"}, "pointer": &Result{IsError: true}})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"pointer":{"content":[],"is_error":true},"value":{"call_id":"\u003cc\u003e","content":[],"is_error":false}}`
	if string(raw) != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(Result{CallID: "<c>"}); err != nil || !strings.Contains(b.String(), `"<c>"`) {
		t.Errorf("an encoder that escapes nothing wrote %s, %v", b.String(), err)
	}
}

func TestResultEventRoundTrip(t *testing.T) {
	code := 3
	image := agui.Media(agui.PartImage, agui.Source{Type: agui.SourceURL, Value: "u"})
	execution := &Execution{Attempt: 2, Sandbox: "s", QueuedMs: 1, Truncated: []string{"stdout"}}
	failed := Failure(KindToolError, "The tool exited with code 3.", agui.Text("so far"))
	failed.Error.ExitCode, failed.Execution, failed.Extra = &code, execution, []agui.Part{Reminder("be brief")}
	for name, want := range map[string]Result{
		"nothing":       {},
		"text":          {Content: []agui.Part{agui.Text("hi")}},
		"parts":         {Content: []agui.Part{agui.Text("hi"), image}, Execution: execution},
		"extra alone":   {Extra: []agui.Part{Reminder("r")}},
		"content, then": {Content: []agui.Part{agui.Text("a")}, Extra: []agui.Part{agui.Text("b"), image}},
		"failed":        failed,
		"refused":       Failure(KindUnknownTool, "There is no such tool."),
	} {
		t.Run(name, func(t *testing.T) {
			want.CallID = "c"
			raw, err := agui.Encode(want.Event(MakeKey("", "", "", ""), "c"))
			if err != nil {
				t.Fatal(err)
			}
			ev, warnings, err := agui.Decode(raw)
			if err != nil || warnings != nil {
				t.Fatalf("%v, %v", warnings, err)
			}
			got, err := ResultOf(ev.(agui.ToolCallResult))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.Transformer("nil", func(p []agui.Part) []agui.Part { return append([]agui.Part{}, p...) })); diff != "" {
				t.Errorf("%s (-want +got):\n%s", raw, diff)
			}
			if got.Status() != want.Status() || got.Kind() != want.Kind() {
				t.Errorf("ended %s %q, want %s %q", got.Status(), got.Kind(), want.Status(), want.Kind())
			}
		})
	}
}

func TestResultOfRefuses(t *testing.T) {
	for _, metadata := range []agui.Metadata{
		{MetaExtra: json.RawMessage("2")},
		{MetaExtra: json.RawMessage("-1")},
		{MetaExtra: json.RawMessage(`"x"`)},
		{MetaError: json.RawMessage(`7`)},
		{MetaExecution: json.RawMessage(`[]`)},
	} {
		ev := agui.ToolCallResult{Base: agui.Base{Metadata: metadata}, Content: agui.Content{Text: "one part"}}
		if r, err := ResultOf(ev); err == nil {
			t.Errorf("metadata %s made %+v", metadata, r)
		}
	}
}

func TestFailureKeepsPartialOutput(t *testing.T) {
	r := Failure(KindTimeout, "The tool did not end within 1s.", agui.Text("so far"))
	if text, _ := agui.ContentOf(r.Contents()).Flatten(); text != "so far\nThe tool did not end within 1s." {
		t.Errorf("text = %q", text)
	}
	if !r.Error.Retryable || Failure(KindInterrupted, "x").Error.Retryable {
		t.Error("a timeout is worth another try, an interrupted call is not")
	}
}

// Whatever happens between them, a delta turns one activity into the next, or
// says that a snapshot is needed.
func TestActivityDelta(t *testing.T) {
	activity := rapid.Custom(func(t *rapid.T) Activity {
		a := Activity{
			ToolCallID: "c", ToolName: "x",
			Status:    rapid.SampledFrom([]Status{StatusQueued, StatusRunning, StatusFailed}).Draw(t, "status"),
			Attempt:   rapid.IntRange(0, 3).Draw(t, "attempt"),
			Seq:       rapid.IntRange(0, 99).Draw(t, "seq"),
			Output:    rapid.SampledFrom([]string{"", "a", "<&>\u2028"}).Draw(t, "output"),
			ElapsedMs: rapid.Int64Range(0, 99).Draw(t, "elapsed"),
		}
		if rapid.Bool().Draw(t, "progress") {
			a.Progress = &Progress{Current: rapid.Float64Range(0, 9).Draw(t, "current"), Message: "m"}
		}
		return a
	})
	rapid.Check(t, func(t *rapid.T) {
		prev, next := activity.Draw(t, "prev"), activity.Draw(t, "next")
		d, ok := next.Delta("k", prev)
		if vanished := (prev.Progress != nil && next.Progress == nil) || (prev.Output != "" && next.Output == ""); ok == vanished {
			t.Fatalf("a delta is possible: %t, and something vanished: %t", ok, vanished)
		}
		if !ok {
			return
		}
		raw, err := agui.Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		ev, _, err := agui.Decode(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		got := prev
		if err := got.Apply(ev.(agui.ActivityDelta)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(next, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestActivityApplyRefuses(t *testing.T) {
	for _, op := range []agui.PatchOp{
		{Op: "remove", Path: "/seq"}, {Op: "add", Path: ""}, {Op: "add", Path: "/seq", Value: json.RawMessage(`"x"`)},
	} {
		a := Activity{Seq: 7}
		if err := a.Apply(agui.ActivityDelta{Patch: []agui.PatchOp{op}}); err == nil || a.Seq != 7 {
			t.Errorf("%+v made %+v, %v", op, a, err)
		}
	}
}

func TestSentencesSayWhatToDo(t *testing.T) {
	for want, r := range map[string]Result{
		"was cancelled.":                Cancelled(""),
		"was cancelled: user":           Cancelled("user"),
		"All workers were busy":         Expired(time.Minute, true),
		"its operator has to start one": Expired(time.Minute, false),
		"Check its effect before":       Interrupted("its worker was lost"),
		"after 3 attempts":              Spent(3),
	} {
		if text, _ := agui.ContentOf(r.Content).Flatten(); !strings.Contains(text, want) || !r.IsError {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}
