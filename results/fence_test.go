package results_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

// TestOneOfManyStartersWins races starters through logs of their own, as if
// each were a process.
func TestOneOfManyStartersWins(t *testing.T) {
	const rounds, starters = 10, 60
	s := natsdtest.Start(t)
	logs := make([]*results.Log, 4)
	for i := range logs {
		js, err := jetstream.New(natsdtest.Connect(t, s))
		if err != nil {
			t.Fatal(err)
		}
		logs[i] = open(t, js, results.Options{})
	}
	for round := range rounds {
		ref, _ := admit(t, logs[0], fmt.Sprint("c", round))
		var winner atomic.Pointer[string]
		others := make(chan string, starters)
		var wg sync.WaitGroup
		for i := range starters {
			wg.Go(func() {
				me := fmt.Sprint("w", i)
				won, other, err := logs[i%len(logs)].Start(t.Context(), ref, results.Marker{Worker: results.Worker{ID: me}, Attempt: 1})
				switch {
				case err != nil:
					t.Error(err)
				case won && !winner.CompareAndSwap(nil, &me):
					t.Errorf("%s won, and so did %s", me, *winner.Load())
				case !won:
					others <- other.ID
				}
			})
		}
		wg.Wait()
		close(others)
		if winner.Load() == nil {
			t.Fatal("nobody won")
		}
		for id := range others {
			if id != *winner.Load() {
				t.Errorf("a loser was told that %s won, and it was %s", id, *winner.Load())
			}
		}
	}
}

// TestOneOfTwoFinishersWins, and nothing is behind its result.
func TestOneOfTwoFinishersWins(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	for round := range 20 {
		ref, _ := admit(t, l, fmt.Sprint("c", round))
		var wins atomic.Int32
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				won, err := l.Finish(t.Context(), ref, "c", success(fmt.Sprint(i)))
				if err != nil {
					t.Error(err)
				}
				if won {
					wins.Add(1)
				}
			})
			wg.Go(func() {
				if err := l.Progress(t.Context(), ref, progress(i), i == 0); err != nil && !errors.Is(err, results.ErrEnded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if wins.Load() != 1 {
			t.Errorf("%d finishers won", wins.Load())
		}
		s, err := l.Look(t.Context(), ref)
		if err != nil || s.Result == nil {
			t.Fatalf("Look = %+v, %v", s, err)
		}
		all := readAll(t, l, ref, 0)
		if last := all[len(all)-1]; last.Kind != results.KindResult || last.Seq != s.LastSeq {
			t.Errorf("the last entry is %s at %d, the log's end %d", last.Kind, last.Seq, s.LastSeq)
		}
	}
}

func TestAdmitTheSameCallAgain(t *testing.T) {
	js := natsdtest.JetStream(t)
	l := open(t, js, results.Options{})
	first, err := l.Admit(t.Context(), job("c"))
	if err != nil || !first.New {
		t.Fatalf("Admit = %+v, %v", first, err)
	}
	again := job("c")
	again.Call.RunID = "another run"
	o, err := l.Admit(t.Context(), again)
	if err != nil || o.New || o.Seq != first.Seq || o.Job.Call.RunID != "run" {
		t.Errorf("the same call: %+v, %v", o, err)
	}
	again.Call.ArgumentsDigest = "sha256:other"
	if _, err := l.Admit(t.Context(), again); !errors.Is(err, results.ErrConflict) {
		t.Errorf("other arguments: %v", err)
	}
	again = job("c")
	again.Call.Tool = "other"
	if _, err := l.Admit(t.Context(), again); !errors.Is(err, results.ErrConflict) {
		t.Errorf("another tool: %v", err)
	}
}

func TestNoSuchLog(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	ref := refOf(job("nobody"))
	if _, err := l.Look(t.Context(), ref); !errors.Is(err, results.ErrNotFound) {
		t.Errorf("Look: %v", err)
	}
	if err := l.Cancel(t.Context(), ref, ""); !errors.Is(err, results.ErrNotFound) {
		t.Errorf("Cancel: %v", err)
	}
	f, err := l.Follow(t.Context(), ref, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	if _, err := f.Next(t.Context()); !errors.Is(err, results.ErrNotFound) {
		t.Errorf("Next: %v", err)
	}
}

func TestHostileRefsDoNotReachTheServer(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	for _, ref := range []results.Ref{{"*", refOf(job("c")).Key}, {"default", ">"}, {"", ""}, {"a.b", refOf(job("c")).Key}} {
		if _, err := l.Look(t.Context(), ref); err == nil {
			t.Errorf("Look at %v", ref)
		}
		if _, err := l.Follow(t.Context(), ref, 0); err == nil {
			t.Errorf("Follow %v", ref)
		}
		if _, err := l.Finish(t.Context(), ref, "c", success("")); err == nil {
			t.Errorf("Finish %v", ref)
		}
	}
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	ref, _ := admit(t, l, "c")
	if _, err := l.Finish(t.Context(), ref, "c", success(strings.Repeat("x", blob.InlineEvent))); err == nil {
		t.Error("a result over the inline limit was taken")
	}
	huge := agui.Custom{Name: "x", Value: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}
	if err := l.Progress(t.Context(), ref, huge, false); err == nil || !strings.Contains(err.Error(), "1047552") {
		t.Errorf("an event over the server's limit: %v", err)
	}
	// The connection has survived it.
	if won, err := l.Finish(t.Context(), ref, "c", success("ok")); !won || err != nil {
		t.Error(won, err)
	}
}

func TestALaterStartOfAnIdempotentTool(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	ref, _ := admit(t, l, "c")
	for n, id := range []string{"w1", "w2"} {
		m := results.Marker{Worker: results.Worker{ID: id}, Attempt: n + 1}
		won, other, err := l.Start(t.Context(), ref, m)
		if err != nil || won != (n == 0) {
			t.Fatal(won, err)
		}
		if !won {
			if other.ID != "w1" || other.Time.IsZero() {
				t.Errorf("other = %+v", other)
			}
			if err := l.StartAgain(t.Context(), ref, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s, err := l.Look(t.Context(), ref); err != nil || s.Start.ID != "w2" {
		t.Errorf("Look = %+v, %v", s.Start, err)
	}
}

// TestTheLogFills fills a small log and sees who is refused when.
func TestTheLogFills(t *testing.T) {
	const size = 1 << 20
	js := natsdtest.JetStream(t)
	l := open(t, js, results.Options{MaxBytes: size})
	ref, _ := admit(t, l, "running")
	filler := agui.Custom{Name: "filler", Value: []byte(`"` + strings.Repeat("x", 8<<10) + `"`)}
	fill := func(part float64) {
		for used(t, js) < part*size {
			if err := l.Progress(t.Context(), ref, filler, true); err != nil {
				t.Fatal(err)
			}
		}
		results.Refill(t.Context(), l)
	}

	fill(0.85)
	if _, err := l.Admit(t.Context(), job("late")); !errors.Is(err, results.ErrFull) {
		t.Errorf("a new call at 85 %%: %v", err)
	}
	if o, err := l.Admit(t.Context(), job("running")); err != nil || o.New {
		t.Errorf("a known call at 85 %%: %+v, %v", o, err)
	}
	if err := l.Progress(t.Context(), ref, filler, false); err != nil {
		t.Errorf("progress at 85 %%: %v", err)
	}

	fill(0.95)
	if err := l.Progress(t.Context(), ref, filler, false); !errors.Is(err, results.ErrFull) {
		t.Errorf("progress at 95 %%: %v", err)
	}
	if err := l.Progress(t.Context(), ref, progress(1), true); err != nil {
		t.Errorf("a state at 95 %%: %v", err)
	}
	if won, err := l.Finish(t.Context(), ref, "c", success("ok")); !won || err != nil {
		t.Errorf("the result at 95 %%: %v, %v", won, err)
	}
}

func used(t *testing.T, js jetstream.JetStream) float64 {
	t.Helper()
	s, err := js.Stream(t.Context(), results.Stream)
	if err != nil {
		t.Fatal(err)
	}
	return float64(s.CachedInfo().State.Bytes)
}

// TestWhatIsKeptForHowLong reads the entries' time to live.
func TestWhatIsKeptForHowLong(t *testing.T) {
	js := natsdtest.JetStream(t)
	l := open(t, js, results.Options{})
	ref, _ := admit(t, l, "c")
	w := results.Worker{ID: "w"}
	for _, err := range []error{
		l.Claim(t.Context(), ref, w, 1), l.Progress(t.Context(), ref, progress(1), true),
		l.Progress(t.Context(), ref, progress(2), false), l.Cancel(t.Context(), ref, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := l.Start(t.Context(), ref, results.Marker{Worker: w}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Finish(t.Context(), ref, "c", success("")); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), results.Stream)
	if err != nil {
		t.Fatal(err)
	}
	for seq := range s.CachedInfo().State.LastSeq {
		m, err := s.GetMsg(t.Context(), seq+1)
		if err != nil {
			t.Fatal(err)
		}
		kind := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		want := map[string]string{"claim": "24h0m0s", "state": "24h0m0s", "progress": "24h0m0s"}[kind]
		if got := m.Header.Get(jetstream.MsgTTLHeader); got != want {
			t.Errorf("%s lives %q, want %q", kind, got, want)
		}
	}
}
