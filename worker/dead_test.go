package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/sandbox"
)

// withDead gives the house a queue, and its worker the dead letters in it.
func (h *house) withDead() *queue.Queue {
	h.Helper()
	q, err := queue.Open(h.Context(), natsdtest.JetStream(h.T), queue.Options{})
	if err != nil {
		h.Fatal(err)
	}
	h.Dead = q.Dead()
	return q
}

// letter reads the letter about a call; ok is false when there is none.
func (h *house) letter(job catalog.Job) (l queue.Letter, ok bool) {
	h.Helper()
	l, err := h.Dead.Get(h.Context(), job.Call.Tenant, job.Call.Key())
	if err != nil && !errors.Is(err, queue.ErrNoLetter) {
		h.Fatal(err)
	}
	return l, err == nil
}

// TestOnlyFaultsOfOursAreDeadLetters: how a call ends decides, and nothing else.
func TestOnlyFaultsOfOursAreDeadLetters(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		script string
		kind   call.Kind
		dead   bool
	}{
		{"a sandbox that cannot be made", errors.New("no space"), "", call.KindSandboxFailed, true},
		{"an image that is not there", sandbox.ErrImage, "", call.KindImageUnavailable, false},
		{"a tool that fails", nil, "exit 3", call.KindToolError, false},
		{"a tool that crashes", nil, "kill -SEGV $$", call.KindCrashed, false},
		{"a tool that works", nil, "echo done", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			h.withDead()
			h.pool.err = tt.err
			job := h.admit(tt.script)
			var err error
			for range call.MaxAttempts {
				if err = h.deliver(t.Context(), job); err == nil {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			wantKind(t, h.result(job), tt.kind)
			l, dead := h.letter(job)
			if dead != tt.dead {
				t.Fatalf("a dead letter: %v", dead)
			}
			if dead && (l.Kind != tt.kind || l.Message == "" || len(l.Attempts) != call.MaxAttempts || l.Attempts[2].Worker != "w-test" || l.Started()) {
				t.Errorf("the letter says %+v", l)
			}
		})
	}
}

// TestACrashBehindTheLetter: a worker that dies between letter and result has
// changed nothing: the next one answers, and there is one letter.
func TestACrashBehindTheLetter(t *testing.T) {
	h := newHouse(t)
	h.withDead()
	job := h.admit("echo ran", idempotent)
	for n := 1; n <= call.MaxAttempts; n++ {
		if err := h.Log.Claim(t.Context(), ref(job), results.Worker{ID: "w-x", Incarnation: "1"}, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.attempt(job).bury(t.Context(), call.Spent(call.MaxAttempts)); err != nil {
		t.Fatal(err)
	}
	first, ok := h.letter(job)
	if !ok || h.state(job).Result != nil {
		t.Fatal("the letter comes before the result")
	}
	wantKind(t, h.run(job), call.KindSandboxFailed)
	if again, ok := h.letter(job); !ok || again.Cursor != first.Cursor {
		t.Error("there is another letter")
	}
}

// TestAnAnsweredCallHasNoLetter: a worker that was taken for dead and was not
// has answered; the letter that was written meanwhile is taken back.
func TestAnAnsweredCallHasNoLetter(t *testing.T) {
	h := newHouse(t)
	h.withDead()
	job := h.admit("echo ran")
	if won, err := h.Log.Finish(t.Context(), ref(job), job.Call.ToolCallID, call.Result{}); !won || err != nil {
		t.Fatal(won, err)
	}
	if err := h.attempt(job).finish(t.Context(), call.Spent(call.MaxAttempts)); err != nil {
		t.Fatal(err)
	}
	if _, ok := h.letter(job); ok {
		t.Error("a call that was answered has a dead letter")
	}
}

// TestGivenUpIsNotStarted: a worker whose delivery another one got too early may
// be on its way to the start. Behind the answer it must not come there.
func TestGivenUpIsNotStarted(t *testing.T) {
	h := newHouse(t)
	h.pool.err = errors.New("no space")
	job := h.admit("echo ran")
	other := results.Worker{ID: "w-slow", Incarnation: "1"}
	for n := 1; n < call.MaxAttempts; n++ {
		if err := h.Log.Claim(t.Context(), ref(job), other, n); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, h.run(job), call.KindSandboxFailed)
	won, marker, err := h.Log.Start(t.Context(), ref(job), results.Marker{Worker: other, Attempt: call.MaxAttempts - 1})
	if won || err != nil || !marker.Void {
		t.Errorf("a tool was started behind its result: %v, %+v, %v", won, marker, err)
	}
}

// TestPain63PoisonLeavesTheQueue: a server that stops to deliver a message keeps
// it, seen by nobody. Here the attempts are ours: a call that cannot be run is
// answered, kept as a dead letter, and gone from the queue.
func TestPain63PoisonLeavesTheQueue(t *testing.T) {
	h := newHouse(t)
	q := h.withDead()
	h.pool.err = errors.New("this call breaks every sandbox")
	job := h.admit("echo ran")
	if err := q.Push(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		s := &queue.Server{Queue: q, Handler: h.Worker, Slots: 2, Drain: time.Second, Log: h.Logger}
		served <- s.Run(ctx)
	}()
	h.until(job, func(e results.Entry) bool { return e.Kind == results.KindResult })
	cancel() // the stop waits for the delivery that is being acknowledged
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	wantKind(t, h.result(job), call.KindSandboxFailed)
	if l, ok := h.letter(job); !ok || len(l.Attempts) != call.MaxAttempts {
		t.Errorf("a dead letter: %v, with %d attempts", ok, len(l.Attempts))
	}
	if there, err := q.Has(t.Context(), queue.AddressOf(job)); there || err != nil {
		t.Errorf("the job is still in the queue: %v, %v", there, err)
	}
	if d, err := q.Depth(t.Context(), queue.DefaultClass); err != nil || d.Waiting+d.InFlight != 0 {
		t.Errorf("the queue is not empty: %+v, %v", d, err)
	}
}

// TestASecondDeliveryWaits: a delivery that was lost, of a call that runs and may
// not run twice, comes to another worker. While the first one lives it is given
// back, as often as it comes, and then finds the result.
func TestASecondDeliveryWaits(t *testing.T) {
	h := newHouse(t)
	h.alive.Store(true)
	job := h.admit("sleep 1; echo done")
	first := make(chan error, 1)
	go func() { first <- h.deliver(t.Context(), job) }()
	h.until(job, running)

	other := &house{T: t, Worker: &Worker{
		Self: results.Worker{ID: "w-other", Incarnation: "1"},
		Log:  h.Log, Blobs: h.Blobs, Sandboxes: h.pool, Alive: h.Alive, Logger: h.Logger,
	}}
	for range 3 {
		var back *errGiveBack
		if err := other.deliver(t.Context(), job); !errors.As(err, &back) || !errors.Is(err, errBusy) || back.after < time.Second {
			t.Fatalf("want it given back for a while, got %v", err)
		}
	}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if err := other.deliver(t.Context(), job); err != nil {
		t.Errorf("behind the result: %v", err)
	}
	wantKind(t, h.result(job), "")
	if n := h.pool.started.Load(); n != 1 {
		t.Errorf("the call had %d sandboxes", n)
	}
}
