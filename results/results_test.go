package results_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natsdtest.Main(m)) }

// open opens a log and runs its shared follower until the test ends.
func open(t testing.TB, js jetstream.JetStream, o results.Options) *results.Log {
	t.Helper()
	l, err := results.Open(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, l)
	return l
}

// run runs the shared follower; the function stops it and waits.
func run(t testing.TB, l *results.Log) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// job makes a job of a call that no other call of the test is.
func job(id string) catalog.Job {
	c := call.Call{
		Version: call.Version, Tenant: "default", ThreadID: "thread", RunID: "run", Scope: id, ToolCallID: id,
		Tool: "word-count", Arguments: `{"text":"a b"}`,
	}
	c.ArgumentsDigest = call.Digest(c.Arguments)
	return catalog.Job{
		Version: call.Version, Call: c, Spec: &catalog.Spec{Name: c.Tool, Class: "default"},
		Admitted: time.Now(), Expires: time.Now().Add(time.Minute),
	}
}

func refOf(j catalog.Job) results.Ref {
	return results.Ref{Tenant: j.Call.Tenant, Key: j.Call.Key()}
}

// admit opens the log of a new call.
func admit(t testing.TB, l *results.Log, id string) (results.Ref, uint64) {
	t.Helper()
	j := job(id)
	o, err := l.Admit(t.Context(), j)
	if err != nil || !o.New {
		t.Fatalf("Admit = %+v, %v", o, err)
	}
	return refOf(j), o.Seq
}

func progress(n int) agui.Event {
	return call.Activity{ToolCallID: "t", ToolName: "word-count", Status: call.StatusRunning, Seq: n}.Snapshot("k")
}

func success(text string) call.Result {
	return call.Result{Content: []agui.Part{agui.Text(text)}}
}

// readAll follows to the end.
func readAll(t testing.TB, l *results.Log, ref results.Ref, after uint64) []results.Entry {
	t.Helper()
	f, err := l.Follow(t.Context(), ref, after)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	return drain(t, f)
}

func drain(t testing.TB, f *results.Follower) []results.Entry {
	t.Helper()
	var all []results.Entry
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		e, err := f.Next(ctx)
		cancel()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("after %d entries: %v", len(all), err)
		}
		all = append(all, e)
	}
}

func kinds(entries []results.Entry) []string {
	var k []string
	for _, e := range entries {
		k = append(k, e.Kind)
	}
	return k
}

func TestALogFromEndToEnd(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	ref, seq := admit(t, l, "c1")
	live, err := l.Follow(t.Context(), ref, seq)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Stop()
	w := results.Worker{ID: "w1", Incarnation: "i1"}
	if err := l.Claim(t.Context(), ref, w, 1); err != nil {
		t.Fatal(err)
	}
	if won, _, err := l.Start(t.Context(), ref, results.Marker{Worker: w, Attempt: 1}); !won || err != nil {
		t.Fatal(won, err)
	}
	for n := range 3 {
		if err := l.Progress(t.Context(), ref, progress(n), n == 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Cancel(t.Context(), ref, "enough"); err != nil {
		t.Fatal(err)
	}
	if won, err := l.Finish(t.Context(), ref, "c1", success("2")); !won || err != nil {
		t.Fatal(won, err)
	}

	want := []string{"claim", "start", "state", "progress", "progress", "cancel", "result"}
	if got := kinds(drain(t, live)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("live: %v", got)
	}
	if got := kinds(readAll(t, l, ref, 0)); fmt.Sprint(got) != fmt.Sprint(append([]string{"admit"}, want...)) {
		t.Errorf("replay: %v", got)
	}

	s, err := l.Look(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if s.Claims != 1 || s.Start == nil || s.Start.ID != "w1" || s.Cancel == nil || *s.Cancel != "enough" || s.Result == nil || s.Job.Call.ToolCallID != "c1" {
		t.Errorf("Look = %+v", s)
	}
	if got := readAll(t, l, ref, s.LastSeq); len(got) != 0 {
		t.Errorf("after the result: %v", got)
	}
	lines, err := l.List(t.Context(), "default", results.ListOptions{})
	if err != nil || len(lines) != 1 || lines[0].Status != call.StatusSucceeded {
		t.Errorf("List = %+v, %v", lines, err)
	}

	if err := l.Progress(t.Context(), ref, progress(9), true); !errors.Is(err, results.ErrEnded) {
		t.Errorf("progress after the result: %v", err)
	}
	if err := l.Claim(t.Context(), ref, w, 2); !errors.Is(err, results.ErrEnded) {
		t.Errorf("claim after the result: %v", err)
	}
	if err := l.Cancel(t.Context(), ref, "late"); !errors.Is(err, results.ErrEnded) {
		t.Errorf("cancel after the result: %v", err)
	}
	if won, err := l.Finish(t.Context(), ref, "c1", success("3")); won || err != nil {
		t.Errorf("second result: %v, %v", won, err)
	}
}
