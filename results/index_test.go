package results_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/results"
)

// epoch is when the logs of these tests begin.
var epoch = time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)

// script draws the logs of some calls, in stream order, and what a list and the
// keeper should see of them.
func script(t *rapid.T) (entries []results.Entry, lines []results.Summary, open []results.Unfinished) {
	seq := uint64(0)
	for i := range rapid.IntRange(1, 12).Draw(t, "calls") {
		at := func() time.Time { return epoch.Add(time.Duration(seq) * time.Second) }
		j := job(fmt.Sprint("c", i))
		j.Call.Tenant = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant")
		j.Call.ThreadID = rapid.StringN(0, 8, call.MaxID).Draw(t, "thread")
		j.Call.RunID = rapid.StringN(0, 8, call.MaxID).Draw(t, "run")
		j.Spec.Annotations.Idempotent = rapid.Bool().Draw(t, "idempotent")
		j.Expires = epoch.Add(time.Hour)
		if rapid.Bool().Draw(t, "refused") {
			r := call.Failure(call.KindUnknownTool, "no")
			j.Refusal = &r
		}
		ref, c := refOf(j), j.Call
		add := func(kind string, v any) {
			seq++
			entries = append(entries, results.MakeEntry(ref, kind, seq, at(), v))
		}
		add(results.KindAdmit, j)
		line := results.Summary{Ref: ref, Tool: c.Tool, ThreadID: c.ThreadID, ToolCallID: c.ToolCallID, Status: call.StatusQueued, Admitted: at(), Cursor: seq}
		u := results.Unfinished{Ref: ref, Tool: c.Tool, ToolCallID: c.ToolCallID, Class: j.Spec.Class, Idempotent: j.Spec.Annotations.Idempotent, Refused: j.Refusal != nil, Admitted: at(), Expires: j.Expires}
		m := results.Marker{Worker: results.Worker{ID: "w", Incarnation: "i"}, Attempt: 1}
		if rapid.Bool().Draw(t, "claimed") {
			add(results.KindClaim, m)
			u.Claims, u.Claimed, u.ClaimedBy = 1, at(), m.Worker
			line.Status = call.StatusStarting
		}
		if rapid.Bool().Draw(t, "started") {
			add(results.KindStart, m)
			u.Claims, u.Claimed, u.ClaimedBy = 1, at(), m.Worker
			u.Start = &results.Marker{Worker: m.Worker, Attempt: 1, Time: at()}
			line.Status = call.StatusRunning
		}
		if rapid.Bool().Draw(t, "cancelled") {
			reason := "why"
			add(results.KindCancel, reason)
			u.Cancel = &reason
		}
		if rapid.Bool().Draw(t, "ended") {
			add(results.KindResult, call.Failure(call.KindTimeout, "late"))
			line.Status, line.Kind, line.Ended = call.StatusTimedOut, call.KindTimeout, at()
		} else {
			open = append(open, u)
		}
		lines = append(lines, line)
	}
	return entries, lines, open
}

// TestIndexProperties: in whatever order the index learns what is in the log,
// and however often, it says the same.
func TestIndexProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries, lines, open := script(t)
		l := results.NewIndexed()
		learnt := rapid.Permutation(append(entries, rapid.SliceOf(rapid.SampledFrom(entries)).Draw(t, "again")...)).Draw(t, "order")
		for _, e := range learnt {
			results.Feed(l, e)
		}
		for _, tenant := range []string{"a", "b"} {
			got, err := l.List(t.Context(), tenant, results.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := slices.DeleteFunc(slices.Clone(lines), func(s results.Summary) bool { return s.Tenant != tenant })
			slices.Reverse(want)
			if diff := cmp.Diff(want, got); len(want)+len(got) > 0 && diff != "" {
				t.Fatalf("the list of %s (-want +got):\n%s", tenant, diff)
			}
		}
		got, err := l.Unfinished(t.Context(), epoch.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(open, got); diff != "" {
			t.Fatalf("unfinished (-want +got):\n%s", diff)
		}
		got, err = l.Due(t.Context(), epoch.Add(time.Hour), len(lines))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(open, got); diff != "" {
			t.Fatalf("due (-want +got):\n%s", diff)
		}
	})
}

// TestDue hands out what is due, the longest due first, and nothing twice.
func TestDue(t *testing.T) {
	l := results.NewIndexed()
	var refs []results.Ref
	for i := range 5 {
		j := job(fmt.Sprint("c", i))
		refs = append(refs, refOf(j))
		results.Feed(l, results.MakeEntry(refs[i], results.KindAdmit, uint64(i+1), epoch.Add(time.Duration(i)*time.Second), j))
	}
	due := func(at time.Duration, n int, want ...int) {
		t.Helper()
		calls, err := l.Due(t.Context(), epoch.Add(at), n)
		if err != nil {
			t.Fatal(err)
		}
		var got []results.Ref
		for _, u := range calls {
			got = append(got, u.Ref)
		}
		var wanted []results.Ref
		for _, i := range want {
			wanted = append(wanted, refs[i])
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("due %s after the beginning (-want +got):\n%s", at, diff)
		}
	}
	due(0, 9)
	due(3500*time.Millisecond, 2, 0, 1)
	due(3500*time.Millisecond, 9, 2, 3)
	l.Later(refs[1], epoch.Add(7*time.Second), 4*time.Second)
	l.Later(refs[0], epoch.Add(6*time.Second), time.Second)
	due(5*time.Second, 9, 4)
	results.Feed(l, results.MakeEntry(refs[0], results.KindResult, 9, epoch, success("")))
	l.Later(refs[0], epoch, 0) // it has ended: due no more
	calls, err := l.Due(t.Context(), epoch.Add(8*time.Second), 9)
	if err != nil || len(calls) != 1 || calls[0].Ref != refs[1] || calls[0].Pause != 4*time.Second {
		t.Errorf("%+v, %v", calls, err)
	}
	due(time.Minute, 9, 2, 3, 4, 1) // nobody said when, so they come again
}

// TestWaitingCallsAreSmall holds the size of a record to its class in Go's
// allocator.
func TestWaitingCallsAreSmall(t *testing.T) {
	if results.RecordSize > 128 {
		t.Errorf("a record has %d bytes", results.RecordSize)
	}
}

// BenchmarkIndex is one more call in an index of waiting ones; it tells what
// each of them keeps.
func BenchmarkIndex(b *testing.B) {
	entries := make([]results.Entry, b.N)
	for i := range entries {
		j := catalog.Job{Version: call.Version, Call: call.Call{
			Tenant: "default", ThreadID: randomID("thread"), RunID: randomID("run"), Scope: "s", ToolCallID: randomID("call"), Tool: "word-count",
		}, Spec: &catalog.Spec{Name: "word-count", Class: "default"}}
		ref := refOf(j)
		entries[i] = results.MakeEntry(ref, results.KindAdmit, uint64(i+1), epoch, j)
	}
	l := results.NewIndexed()
	before := live()
	b.ReportAllocs()
	b.ResetTimer()
	for _, e := range entries {
		results.Feed(l, e)
	}
	b.StopTimer()
	b.ReportMetric(float64(live()-before)/float64(b.N), "kept-B/op")
	runtime.KeepAlive(entries)
	runtime.KeepAlive(l)
}

// randomID is an id as a door makes it.
func randomID(of string) string {
	return fmt.Sprintf("%s_%016x%016x", of, rand.Uint64(), rand.Uint64())
}

// live is how many bytes are in use.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // not that many
}
