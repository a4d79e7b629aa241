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

func TestMain(m *testing.M) { goleak.VerifyTestMain(natsdtest.Main(m)) }

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

// at is where a job of this test is.
func at(key call.Key) queue.Address {
	return queue.Address{Tenant: "default", Tool: "word-count", Key: key}
}

func push(t testing.TB, q *queue.Queue, id string) call.Key {
	t.Helper()
	j := job(id)
	if err := q.Push(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	return j.Call.Key()
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

// acks is a handler that acknowledges everything and says what it had.
func acks(t testing.TB, had chan<- *queue.Delivery) queue.Handler {
	return queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		if err := d.Ack(ctx); err != nil {
			t.Error(err)
		}
		had <- d
	})
}

// awaitGone waits until a job that was acknowledged is out of the queue. On one
// server it is so at once; three have to agree first.
func awaitGone(t testing.TB, q *queue.Queue, key call.Key) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		has, err := q.Has(ctx, at(key))
		if err != nil {
			t.Fatalf("after the ack: %v", err)
		}
		if !has {
			return
		}
	}
}

// get waits for a value, or fails.
func get[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

func TestPushAndHandle(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	had := make(chan *queue.Delivery, 10)
	stop := serve(t, &queue.Server{Queue: q, Slots: 2, Handler: acks(t, had)})
	for i := range 5 {
		key := push(t, q, fmt.Sprint("c", i))
		if d := get(t, had, "a delivery"); d.Job.Call.Key() != key || d.Delivered != 1 {
			t.Errorf("delivery %d of %s", d.Delivered, d.Job.Call.Key())
		}
		awaitGone(t, q, key)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestASecondPushWaitsForTheFirst(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	key := push(t, q, "c")
	if err := q.Push(t.Context(), job("c")); !errors.Is(err, queue.ErrWaiting) {
		t.Errorf("second push: %v", err)
	}
	if d, err := q.Depth(t.Context(), ""); err != nil || d.Waiting != 1 || d.InFlight != 0 || d.Free != 0 {
		t.Errorf("Depth = %+v, %v", d, err)
	}
	for range 2 {
		if err := q.Remove(t.Context(), at(key)); err != nil {
			t.Fatal(err)
		}
	}
	push(t, q, "c")
}

func TestPushIsRefused(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{MaxBytes: 4096})
	big := job("big")
	big.Call.Arguments = string(make([]byte, 3<<20))
	if err := q.Push(t.Context(), big); err == nil || errors.Is(err, queue.ErrFull) {
		t.Errorf("over the server's limit: %v", err)
	}
	class := job("class")
	class.Spec.Class = "a.b"
	if err := q.Push(t.Context(), class); err == nil {
		t.Error("a class that is no token was taken")
	}
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = q.Push(t.Context(), job(fmt.Sprint("c", i)))
	}
	if !errors.Is(err, queue.ErrFull) {
		t.Errorf("a full queue: %v", err)
	}
}

func TestClassesAreApart(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	had := make(chan *queue.Delivery, 10)
	serve(t, &queue.Server{Queue: q, Class: "gpu", Handler: acks(t, had)})
	push(t, q, "plain")
	gpu := job("gpu")
	gpu.Spec.Class = "gpu"
	if err := q.Push(t.Context(), gpu); err != nil {
		t.Fatal(err)
	}
	if d := get(t, had, "the job of class gpu"); d.Job.Call.ToolCallID != "gpu" {
		t.Errorf("got %s", d.Job.Call.ToolCallID)
	}
	if d, err := q.Depth(t.Context(), queue.DefaultClass); err != nil || d.Waiting != 1 {
		t.Errorf("Depth = %+v, %v", d, err)
	}
}

// TestEveryJobIsHandledOnce has many slots of two servers race for jobs.
func TestEveryJobIsHandledOnce(t *testing.T) {
	const jobs = 300
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	had := make(chan *queue.Delivery, 2*jobs)
	stops := []func() error{
		serve(t, &queue.Server{Queue: q, Slots: 8, Handler: acks(t, had)}),
		serve(t, &queue.Server{Queue: q, Slots: 8, Handler: acks(t, had)}),
	}
	for i := range jobs {
		push(t, q, fmt.Sprint("c", i))
	}
	seen := map[string]int{}
	for range jobs {
		seen[get(t, had, "a delivery").Job.Call.ToolCallID]++
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	if len(seen) != jobs || len(had) != 0 {
		t.Errorf("%d jobs, %d handled, %d more deliveries", jobs, len(seen), len(had))
	}
}
