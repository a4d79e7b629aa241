package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

func enqueue(t testing.TB, q *queue.Queue, id string, limit int) call.Key {
	t.Helper()
	j := job(id)
	j.Spec.MaxInFlight = limit
	if err := q.Enqueue(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	return j.Call.Key()
}

// told reads what waits until the test ends.
func told(t testing.TB, q *queue.Queue) <-chan queue.Waiting {
	t.Helper()
	ch := make(chan queue.Waiting, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Waits(ctx, func(w queue.Waiting) { ch <- w }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Waits: %v", err)
		}
	})
	return ch
}

// TestWaitsThenIsReady takes a job from CALLS to a worker.
func TestWaitsThenIsReady(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	before := enqueue(t, q, "before", 3)
	waits := told(t, q)
	after := enqueue(t, q, "after", 0)
	for i, want := range []queue.Waiting{
		{Address: queue.Address{Class: "default", Priority: "interactive", Tenant: "default", Tool: "word-count", Key: before}, Seq: 1, MaxInFlight: 3},
		{Address: queue.Address{Class: "default", Priority: "interactive", Tenant: "default", Tool: "word-count", Key: after}, Seq: 2},
	} {
		got := get(t, waits, "what waits")
		if age := time.Since(got.Since); age < -time.Minute || age > time.Minute {
			t.Errorf("%d came at %s", i, got.Since)
		}
		got.Since = time.Time{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("told of %d: %s", i, diff)
		}
		if has, err := q.Has(t.Context(), at(want.Key)); !has || err != nil {
			t.Errorf("Has = %v, %v", has, err)
		}
	}
	if there, err := q.Promote(t.Context(), 1); !there || err != nil {
		t.Fatalf("Promote = %v, %v", there, err)
	}
	ready, err := q.Ready(t.Context())
	if diff := cmp.Diff(map[call.Key]string{before: "default"}, ready); diff != "" || err != nil {
		t.Errorf("Ready: %s, %v", diff, err)
	}
	if there, err := q.Promote(t.Context(), 1); there || err != nil {
		t.Errorf("Promote again = %v, %v", there, err)
	}
	had := make(chan *queue.Delivery, 1)
	serve(t, &queue.Server{Queue: q, Handler: acks(t, had)})
	if d := get(t, had, "a delivery"); d.Job.Call.Key() != before || d.Job.Spec.MaxInFlight != 3 {
		t.Errorf("delivered %+v", d.Job)
	}
}

// TestAJobWaitsOnce refuses a job that waits already, and takes it again once it
// was taken away. One that is in READY already leaves CALLS when it is promoted,
// and is there once.
func TestAJobWaitsOnce(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	key := enqueue(t, q, "c", 0)
	if err := q.Enqueue(t.Context(), job("c")); !errors.Is(err, queue.ErrWaiting) {
		t.Errorf("again: %v", err)
	}
	for range 2 {
		if err := q.Remove(t.Context(), at(key)); err != nil {
			t.Fatal(err)
		}
	}
	if has, err := q.Has(t.Context(), at(key)); has || err != nil {
		t.Errorf("after Remove: Has = %v, %v", has, err)
	}
	push(t, q, "c")
	enqueue(t, q, "c", 0)
	if there, err := q.Promote(t.Context(), 2); !there || err != nil {
		t.Errorf("Promote = %v, %v", there, err)
	}
	if d, err := q.Depth(t.Context(), ""); d.Waiting != 1 || err != nil {
		t.Errorf("Depth = %+v, %v", d, err)
	}
	if err := q.Drop(t.Context(), 2); err != nil {
		t.Errorf("Drop of what is gone: %v", err)
	}
}

// TestAFullLineSaysSo fills CALLS.
func TestAFullLineSaysSo(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{MaxBytes: 4096})
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = q.Enqueue(t.Context(), job(fmt.Sprint("c", i)))
	}
	if !errors.Is(err, queue.ErrFull) {
		t.Errorf("a full line: %v", err)
	}
}

// TestAnOldCallsStreamIsReplaced opens the queue on a server that an earlier
// version has used: its CALLS was a work queue, and empty.
func TestAnOldCallsStreamIsReplaced(t *testing.T) {
	js := natsdtest.JetStream(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: queue.CallsStream, Subjects: []string{"toolfleet.calls.*.*.*.*.*"}, Retention: jetstream.WorkQueuePolicy,
	}); err != nil {
		t.Fatal(err)
	}
	q := open(t, js, queue.Options{})
	enqueue(t, q, "c", 0)
	get(t, told(t, q), "what waits")
}
