package dispatch

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/results"
)

// history is a log as workers, keepers and dispatchers may write it.
type history struct {
	ref     results.Ref
	job     catalog.Job
	entries []results.Entry
	result  call.Result
}

func (h *history) add(kind string, ev agui.Event) {
	data, err := agui.Encode(ev)
	if err != nil {
		panic(err)
	}
	// Sequences are the stream's, so a log's have gaps.
	seq := uint64(10)
	if n := len(h.entries); n > 0 {
		seq = h.entries[n-1].Seq + 3
	}
	h.entries = append(h.entries, results.Entry{Seq: seq, Kind: kind, Time: time.Unix(0, 0), Data: data})
}

func custom(name string) agui.Event {
	ev := agui.Custom{Name: name, Value: json.RawMessage(`{}`)}
	ev.Metadata = ev.Metadata.Set("toolfleet.nonce", "x")
	return ev
}

// genHistory makes a log: attempts, each with a snapshot and progress, a
// cancel anywhere, and one result, which may say anything.
func genHistory(t *rapid.T) *history {
	c := call.Call{Tenant: "default", ThreadID: "t", RunID: "r", Scope: "s", ToolCallID: "c", Tool: "echo"}
	h := &history{ref: results.Ref{Tenant: "default", Key: c.Key()}, job: catalog.Job{Call: c}}
	h.add(results.KindAdmit, custom("toolfleet.admit"))
	for attempt := range rapid.IntRange(0, 3).Draw(t, "attempts") {
		h.add(results.KindClaim, custom("toolfleet.claim"))
		h.attempt(t, attempt+1)
		if rapid.Bool().Draw(t, "cancel") {
			h.add(results.KindCancel, custom("toolfleet.cancel"))
		}
	}
	end := rapid.SampledFrom(call.Ends).Draw(t, "end")
	h.result = call.Result{Content: []agui.Part{agui.Text("ok")}}
	if end.Kind != "" {
		h.result = call.Failure(end.Kind, "It failed.")
	}
	ev := h.result.Event(h.ref.Key, "c")
	ev.Metadata = ev.Metadata.Set("toolfleet.nonce", "x")
	h.add(results.KindResult, ev)
	return h
}

func (h *history) attempt(t *rapid.T, n int) {
	now := call.Activity{ToolCallID: "c", ToolName: "echo", Status: call.StatusRunning, Attempt: n}
	snapshot := now.Snapshot(h.ref.Key)
	snapshot.Metadata = snapshot.Metadata.Set("toolfleet.nonce", "x")
	h.add(results.KindState, snapshot)
	for range rapid.IntRange(0, 4).Draw(t, "updates") {
		prev := now
		now.Seq++
		now.Output = rapid.StringN(0, 20, -1).Draw(t, "output")
		now.Progress = nil
		if rapid.Bool().Draw(t, "counts") {
			now.Progress = &call.Progress{Current: rapid.Float64Range(0, 100).Draw(t, "current")}
		}
		if d, ok := now.Delta(h.ref.Key, prev); ok {
			h.add(results.KindProgress, d)
		} else {
			h.add(results.KindProgress, now.Snapshot(h.ref.Key))
		}
	}
}

// show reads the log as Follow does.
func (h *history) show(t *rapid.T, args string, after uint64) []RunEvent {
	r := &Run{view: newView(h.ref, h.job, args, nil)}
	opened := false
	var seen uint64
	for _, e := range h.entries {
		if !opened && (e.Kind == results.KindAdmit || e.Seq <= after && e.Kind != results.KindResult) {
			if err := r.view.absorb(e); err != nil {
				t.Fatal(err)
			}
			seen = e.Seq
			continue
		}
		if !opened {
			r.push(seen, r.view.open())
			opened = true
		}
		evs, err := r.view.show(e)
		if err != nil {
			t.Fatal(err)
		}
		r.push(e.Seq, evs)
	}
	return r.pending
}

// Whatever the log holds and wherever a client resumes: a run that the
// verifier takes, the same last activity, the same one result, and nothing
// that is the fleet's own.
func TestEveryLogShowsAsAWholeRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := genHistory(t)
		args := rapid.String().Draw(t, "args")
		whole := h.show(t, args, 0)
		check(t, h, args, whole)
		for _, ev := range whole {
			if ev.Seq != 0 {
				check(t, h, args, h.show(t, args, ev.Seq))
			}
		}
	})
}

func check(t *rapid.T, h *history, args string, evs []RunEvent) {
	t.Helper()
	var (
		shown    strings.Builder
		activity call.Activity
		answers  []call.Result
		last     uint64
	)
	verify(t, evs)
	for _, ev := range evs {
		if ev.Seq != 0 && ev.Seq <= last {
			t.Fatalf("id %d after %d", ev.Seq, last)
		}
		last = max(last, ev.Seq)
		switch ev := ev.Event.(type) {
		case agui.ToolCallArgs:
			shown.WriteString(ev.Delta)
		case agui.ActivitySnapshot:
			activity = call.Activity{}
			if err := json.Unmarshal(ev.Content, &activity); err != nil {
				t.Fatal(err)
			}
		case agui.ActivityDelta:
			if err := activity.Apply(ev); err != nil {
				t.Fatal(err)
			}
		case agui.ToolCallResult:
			r, err := call.ResultOf(ev)
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, r)
		case agui.Custom:
			t.Fatalf("%s is the fleet's own", ev.Name)
		}
		if data, err := agui.Encode(ev.Event); err != nil || strings.Contains(string(data), "nonce") {
			t.Fatalf("%v: %s", err, data)
		}
	}
	if shown.String() != args {
		t.Fatalf("arguments %q, want %q", shown.String(), args)
	}
	want := h.result
	want.CallID = "c"
	if diff := cmp.Diff([]call.Result{want}, answers); diff != "" {
		t.Fatal(diff)
	}
	if activity.Status != want.Status() {
		t.Fatalf("the activity ends %q and the call %q", activity.Status, want.Status())
	}
	if evs[len(evs)-1].Seq != h.entries[len(h.entries)-1].Seq {
		t.Fatal("the last event has no id")
	}
}

func TestSplitKeepsCharactersWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Repeat(rapid.SampledFrom([]string{"x", "é", "漢", "😀", "\xff"}).Draw(t, "unit"), rapid.IntRange(0, 100_000).Draw(t, "n"))
		if rapid.Bool().Draw(t, "shift") {
			s = "x" + s
		}
		var joined strings.Builder
		for piece, rest := split(s); ; piece, rest = split(rest) {
			if len(piece) > argsDelta {
				t.Fatalf("%d bytes", len(piece))
			}
			if strings.ToValidUTF8(s, "") == s && strings.ToValidUTF8(piece, "") != piece {
				t.Fatal("a character was cut")
			}
			joined.WriteString(piece)
			if rest == "" {
				break
			}
		}
		if joined.String() != s {
			t.Fatal("bytes were lost")
		}
	})
}

// An event that a newer worker wrote in another form is left out; the result
// is not.
func TestUnreadableProgressCostsNoResult(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := genHistory(t)
		odd := agui.ActivityDelta{MessageID: h.ref.Key.ActivityMessageID(), ActivityType: call.ActivityType, Patch: []agui.PatchOp{{Op: "move", Path: "/a", From: "/b"}}}
		data, err := agui.Encode(odd)
		if err != nil {
			t.Fatal(err)
		}
		i := rapid.IntRange(1, len(h.entries)-1).Draw(t, "at")
		e := results.Entry{Seq: h.entries[i].Seq - 1, Kind: results.KindProgress, Data: data}
		h.entries = append(h.entries[:i:i], append([]results.Entry{e}, h.entries[i:]...)...)
		check(t, h, "{}", h.show(t, "{}", 0))
	})
}
