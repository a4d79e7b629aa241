package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/keeper"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// TestPain66PoisonIsPutAway: a call that kills every worker it meets never tells
// anybody that it failed. Its attempts are in its log, where no crash takes
// them: after the last one the keeper answers it, keeps it as a dead letter and
// takes it out of the queues. Before the tool or behind its start, warm or cold.
func TestPain66PoisonIsPutAway(t *testing.T) {
	for name, step := range map[string]struct {
		dies    func(h *house, ref results.Ref, w results.Worker, n int) error
		started bool
	}{
		"while its sandbox starts": {func(h *house, ref results.Ref, w results.Worker, n int) error {
			return h.Claim(t.Context(), ref, w, n)
		}, false},
		"while its tool runs": {func(h *house, ref results.Ref, w results.Worker, n int) error {
			return errors.Join(h.Claim(t.Context(), ref, w, n), h.start(t, ref, w, n))
		}, true},
		"in a warm sandbox": {func(h *house, ref results.Ref, w results.Worker, n int) error {
			return h.start(t, ref, w, n)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, js := deadHouse(t)
			ref, job := h.admit(t, func(j *catalog.Job) { j.Spec.Annotations.Idempotent = true })
			h.push(t, job)
			for n := 1; n <= call.MaxAttempts; n++ {
				h.deliver(t, js, ref)
				if err := step.dies(h, ref, results.Worker{ID: fmt.Sprint("victim-", n), Incarnation: "1"}, n); err != nil {
					t.Fatal(err)
				}
			}
			h.keep(t)

			r := h.result(t, ref)
			if r.Kind() != call.KindSandboxFailed || r.Error.Attempt != call.MaxAttempts {
				t.Errorf("answered with %q after attempt %d", r.Kind(), r.Error.Attempt)
			}
			l, err := h.q.Dead().Get(t.Context(), "default", ref.Key)
			if err != nil {
				t.Fatal(err)
			}
			var workers []string
			for _, a := range l.Attempts {
				workers = append(workers, a.Worker)
			}
			if got := fmt.Sprint(workers); got != "[victim-1 victim-2 victim-3]" || l.Started() != step.started || l.Kind != r.Kind() {
				t.Errorf("the letter says workers %s, started %v, %s", got, l.Started(), l.Kind)
			}
			h.awaitQueued(t, ref, false)
			for _, name := range []string{queue.ReadyStream, queue.CallsStream} {
				s, err := js.Stream(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if n := s.CachedInfo().State.Msgs; n != 0 {
					t.Errorf("%d messages are left in %s", n, name)
				}
			}
		})
	}
}

// TestTheKeeperFinishesADeadLetter: whoever died between letter and result left
// an open call; the keeper answers it, and the letter stays the one it is.
func TestTheKeeperFinishesADeadLetter(t *testing.T) {
	h, _ := deadHouse(t)
	h.keep(t)
	ref, job := h.admit(t, nil)
	if err := h.Claim(t.Context(), ref, dead, call.MaxAttempts); err != nil {
		t.Fatal(err)
	}
	if filed, err := h.q.Dead().File(t.Context(), queue.NewLetter(job, call.Spent(call.MaxAttempts), nil, time.Now())); !filed || err != nil {
		t.Fatal(filed, err)
	}
	if r := h.result(t, ref); r.Kind() != call.KindSandboxFailed {
		t.Errorf("answered with %q", r.Kind())
	}
	if n, err := h.q.Dead().Len(t.Context()); n != 1 || err != nil {
		t.Errorf("%d letters, %v", n, err)
	}
}

// deadHouse is a house without a keeper, in which a delivery is lost after half
// a second.
func deadHouse(t *testing.T) (*house, jetstream.JetStream) {
	t.Helper()
	js := natsdtest.JetStream(t)
	h := &house{}
	h.open(t, js)
	var err error
	if h.q, err = queue.Open(t.Context(), js, queue.Options{AckWait: 500 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	h.run(t, h.Run)
	return h, js
}

// keep runs a keeper until the test ends.
func (h *house) keep(t *testing.T) {
	t.Helper()
	k := &keeper.Keeper{Log: h.Log, Queue: h.q, Registry: h.r, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	keeper.SetSettle(k, 500*time.Millisecond)
	h.run(t, k.Run)
}

// run runs f until the test ends.
func (h *house) run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (h *house) start(t *testing.T, ref results.Ref, w results.Worker, n int) error {
	m := results.Marker{Worker: w, Attempt: n}
	won, _, err := h.Start(t.Context(), ref, m)
	if err == nil && !won {
		err = h.StartAgain(t.Context(), ref, m)
	}
	return err
}

// deliver takes the job as a worker does that dies at once: the delivery is
// neither kept alive nor ended, and nobody is registered.
func (h *house) deliver(t *testing.T, js jetstream.JetStream, ref results.Ref) {
	t.Helper()
	if _, err := h.q.Depth(t.Context(), queue.DefaultClass); err != nil { // makes the consumer
		t.Fatal(err)
	}
	c, err := js.Consumer(t.Context(), queue.ReadyStream, "ready-"+queue.DefaultClass)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := c.Next(jetstream.FetchMaxWait(20 * time.Second))
	if err != nil || !strings.HasSuffix(msg.Subject(), string(ref.Key)) {
		t.Fatalf("no delivery: %v", err)
	}
}

// TestAnAnsweredCallHasNoLetter: a worker that was taken for dead and was not
// has answered since the keeper looked; the letter is taken back.
func TestAnAnsweredCallHasNoLetter(t *testing.T) {
	h, _ := deadHouse(t)
	ref, _ := h.admit(t, nil)
	st, err := h.Look(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if won, err := h.Finish(t.Context(), ref, "c", call.Result{}); !won || err != nil {
		t.Fatal(won, err)
	}
	k := &keeper.Keeper{Log: h.Log, Queue: h.q, Registry: h.r, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if won, err := keeper.Finish(t.Context(), k, ref, st, call.Spent(call.MaxAttempts)); won || err != nil {
		t.Errorf("the keeper's result: won %v, %v", won, err)
	}
	if _, err := h.q.Dead().Get(t.Context(), "default", ref.Key); !errors.Is(err, queue.ErrNoLetter) {
		t.Errorf("a call that was answered has a dead letter: %v", err)
	}
}
