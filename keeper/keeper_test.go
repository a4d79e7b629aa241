package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/keeper"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natsdtest.Main(m)) }

// house is a log, a queue and a registry with a keeper on them.
type house struct {
	*results.Log
	js jetstream.JetStream
	q  *queue.Queue
	r  *queue.Registry
}

var (
	living = results.Worker{ID: "living", Incarnation: "1"}
	dead   = results.Worker{ID: "dead", Incarnation: "1"}
)

// open opens a house with two keepers, to see that they do each other no harm.
func open(t *testing.T) *house {
	t.Helper()
	js := natsdtest.JetStream(t)
	h := &house{}
	h.open(t, js)
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error { return h.Run(ctx) })
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	for range 2 {
		k := &keeper.Keeper{Log: h.Log, Queue: h.q, Registry: h.r, Logger: log}
		keeper.SetSettle(k, 500*time.Millisecond)
		g.Go(func() error { return k.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *house) open(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	h.js = js
	var err error
	if h.Log, err = results.Open(t.Context(), js, results.Options{}); err != nil {
		t.Fatal(err)
	}
	if h.q, err = queue.Open(t.Context(), js, queue.Options{}); err != nil {
		t.Fatal(err)
	}
	if h.r, err = queue.OpenRegistry(t.Context(), js, queue.Options{}); err != nil {
		t.Fatal(err)
	}
	h.r.Patience = 0 // the dead are dead
}

func (h *house) admit(t *testing.T, change func(*catalog.Job)) (results.Ref, catalog.Job) {
	t.Helper()
	job := catalog.Job{
		Version: call.Version,
		Call:    call.Call{Version: call.Version, Tenant: "default", ThreadID: "t", RunID: "r", Scope: t.Name(), ToolCallID: "c", Tool: "tool"},
		Spec:    &catalog.Spec{Name: "tool", Class: "default"}, Admitted: time.Now(), Expires: time.Now().Add(time.Hour),
	}
	if change != nil {
		change(&job)
	}
	if _, err := h.Admit(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	return results.Ref{Tenant: "default", Key: job.Call.Key()}, job
}

// result waits for the call's end.
func (h *house) result(t *testing.T, ref results.Ref) call.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	f, err := h.Follow(ctx, ref, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	for {
		e, err := f.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != results.KindResult {
			continue
		}
		ev, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		r, err := call.ResultOf(ev.(agui.ToolCallResult))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

func TestEndsWhatNobodyEnds(t *testing.T) {
	past := func(j *catalog.Job) { j.Expires = time.Now() }
	refusal := call.Failure(call.KindUnknownTool, "no such tool")
	for name, c := range map[string]struct {
		change func(*catalog.Job)
		before func(h *house, ref results.Ref) error
		want   call.Kind
	}{
		"waited too long":          {past, nil, call.KindExpired},
		"refused and not answered": {func(j *catalog.Job) { j.Spec, j.Refusal = nil, &refusal }, nil, call.KindUnknownTool},
		"cancelled while it waited": {nil, func(h *house, ref results.Ref) error {
			return h.Cancel(t.Context(), ref, "enough")
		}, call.KindCancelled},
		"attempts spent": {nil, func(h *house, ref results.Ref) error {
			return h.Claim(t.Context(), ref, dead, call.MaxAttempts)
		}, call.KindSandboxFailed},
		"lost after the start": {nil, func(h *house, ref results.Ref) error {
			_, _, err := h.Start(t.Context(), ref, results.Marker{Worker: dead, Attempt: 1})
			return err
		}, call.KindInterrupted},
		"ended by somebody who died": {past, func(h *house, ref results.Ref) error {
			_, _, err := h.Start(t.Context(), ref, results.Marker{Worker: dead, Void: true})
			return err
		}, call.KindExpired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			ref, job := h.admit(t, c.change)
			if c.before != nil {
				if err := c.before(h, ref); err != nil {
					t.Fatal(err)
				}
			}
			if job.Spec != nil {
				h.push(t, job)
			}
			r := h.result(t, ref)
			if r.Kind() != c.want || r.CallID != "c" {
				t.Errorf("%s %q, want %s", r.Kind(), r.CallID, c.want)
			}
			h.awaitQueued(t, ref, false)
		})
	}
}

// push queues a job, as its dispatcher does. A keeper may have been faster.
func (h *house) push(t *testing.T, job catalog.Job) {
	t.Helper()
	if err := h.q.Push(t.Context(), job); err != nil && !errors.Is(err, queue.ErrWaiting) {
		t.Fatal(err)
	}
}

// awaitQueued waits until the job is in the queue, or is not.
func (h *house) awaitQueued(t *testing.T, ref results.Ref, want bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		got, err := h.q.Has(ctx, queue.Address{Tenant: ref.Tenant, Tool: "tool", Key: ref.Key})
		if err != nil {
			t.Fatalf("waiting for queued = %v: %v", want, err)
		}
		if got == want {
			return
		}
	}
}

func TestQueuesALostJobAgain(t *testing.T) {
	for name, before := range map[string]func(h *house, ref results.Ref) error{
		"never queued": func(*house, results.Ref) error { return nil },
		"started, may run again": func(h *house, ref results.Ref) error {
			_, _, err := h.Start(t.Context(), ref, results.Marker{Worker: dead, Attempt: 1})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			ref, _ := h.admit(t, func(j *catalog.Job) { j.Spec.Annotations.Idempotent = true })
			if err := before(h, ref); err != nil {
				t.Fatal(err)
			}
			h.awaitQueued(t, ref, true)
		})
	}
}

// TestLeavesALivingWorkerAlone has a call run by a worker that beats, and one
// whose last attempt such a worker has begun, beside one whose worker does not
// beat: when that is ended, all were looked at.
func TestLeavesALivingWorkerAlone(t *testing.T) {
	h := open(t)
	h.beat(t)
	runs, _ := h.admit(t, nil)
	again, job := h.admit(t, func(j *catalog.Job) { j.Call.Scope, j.Spec.Annotations.Idempotent = "again", true })
	h.push(t, job)
	lost, _ := h.admit(t, func(j *catalog.Job) { j.Call.Scope = "another" })
	if err := h.Claim(t.Context(), again, living, call.MaxAttempts); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Start(t.Context(), again, results.Marker{Worker: dead, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	for ref, w := range map[results.Ref]results.Worker{runs: living, lost: dead} {
		if _, _, err := h.Start(t.Context(), ref, results.Marker{Worker: w, Attempt: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if r := h.result(t, lost); r.Kind() != call.KindInterrupted {
		t.Errorf("the lost one: %s", r.Kind())
	}
	for name, ref := range map[string]results.Ref{"running": runs, "last attempt's": again} {
		if s, err := h.Look(t.Context(), ref); err != nil || s.Result != nil {
			t.Errorf("the %s: %+v, %v", name, s.Result, err)
		}
	}
}

// TestAJobThatItsLivingWorkerLostIsQueuedAgain has a call whose worker gave it
// back and beats, and whose job is gone: a fresh start is left alone, an old one
// is not.
func TestAJobThatItsLivingWorkerLostIsQueuedAgain(t *testing.T) {
	h := open(t)
	h.beat(t)
	ref, _ := h.admit(t, nil)
	if _, _, err := h.Start(t.Context(), ref, results.Marker{Worker: living, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	var calls []results.Unfinished
	for len(calls) == 0 || calls[0].Start == nil { // until the index knows
		var err error
		if calls, err = h.Unfinished(t.Context(), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	k := &keeper.Keeper{Log: h.Log, Queue: h.q, Registry: h.r}
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{time.Minute, false}, {10 * time.Minute, true}} {
		if err := keeper.Visit(t.Context(), k, calls[0], time.Now().Add(c.after)); err != nil {
			t.Fatal(err)
		}
		got, err := h.q.Has(t.Context(), queue.Address{Tenant: ref.Tenant, Tool: "tool", Key: ref.Key})
		if err != nil || got != c.want {
			t.Errorf("%s later it is queued: %t, %v", c.after, got, err)
		}
	}
}

// TestCallsThatCannotBeReadHoldUpNobody has more calls with a broken log than
// failures end a step, and then one that waited too long.
func TestCallsThatCannotBeReadHoldUpNobody(t *testing.T) {
	h := open(t)
	for i := range 25 {
		ref, _ := h.admit(t, func(j *catalog.Job) { j.Call.Scope = fmt.Sprint("broken", i) })
		if _, err := h.js.Publish(t.Context(), "toolfleet.events."+ref.Tenant+"."+string(ref.Key)+".start", []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	ref, job := h.admit(t, func(j *catalog.Job) { j.Expires = time.Now() })
	h.push(t, job)
	if r := h.result(t, ref); r.Kind() != call.KindExpired {
		t.Errorf("%s, want %s", r.Kind(), call.KindExpired)
	}
}

// beat registers the living worker until the test ends.
func (h *house) beat(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- h.r.Run(ctx, func() queue.WorkerInfo {
			return queue.WorkerInfo{ID: living.ID, Incarnation: living.Incarnation}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for {
		alive, err := h.r.Alive(t.Context(), living.ID, living.Incarnation)
		if err != nil {
			t.Fatal(err)
		}
		if alive {
			return
		}
	}
}
