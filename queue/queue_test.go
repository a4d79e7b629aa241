package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shortWait is an ack wait that a test can sit out.
const shortWait = 600 * time.Millisecond

func open(t testing.TB, js jetstream.JetStream, o queue.Options) *queue.Queue {
	t.Helper()
	q, err := queue.Open(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// job makes the job of a call that no other call of the test is.
func job(id string) catalog.Job {
	return catalog.Job{
		Version: call.Version,
		Call:    call.Call{Version: call.Version, Tenant: "default", ThreadID: "t", RunID: "r", Scope: id, ToolCallID: id, Tool: "word-count"},
		Spec:    &catalog.Spec{Name: "word-count"},
	}
}

// serve runs a server; stop drains it and returns what Run did.
func serve(t testing.TB, s *queue.Server) (stop func() error) {
	t.Helper()
	if s.Log == nil {
		s.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = s.Run(ctx)
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		<-done
		return err
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// get waits for a value, or fails.
func get[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

func TestPushAndHandle(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	handled := make(chan string, 10)
	stop := serve(t, &queue.Server{Queue: q, Slots: 2, Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		if err := d.Ack(ctx); err != nil {
			t.Error(err)
		}
		handled <- d.Job.Call.ToolCallID
	})})
	for i := range 5 {
		j := job(fmt.Sprint("c", i))
		if err := q.Push(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		get(t, handled, "a delivery")
		if has, err := q.Has(t.Context(), "", j.Call.Key()); has || err != nil {
			t.Errorf("after the ack: Has = %v, %v", has, err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestASecondPushWaitsForTheFirst(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	j := job("c")
	if err := q.Push(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if err := q.Push(t.Context(), j); !errors.Is(err, queue.ErrWaiting) {
		t.Errorf("second push: %v", err)
	}
	if d, err := q.Depth(t.Context(), ""); err != nil || d.Waiting != 1 {
		t.Errorf("Depth = %+v, %v", d, err)
	}
	for range 2 {
		if err := q.Remove(t.Context(), "", j.Call.Key()); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Push(t.Context(), j); err != nil {
		t.Errorf("push after the removal: %v", err)
	}
}
