package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

// TestPain80NoPullAfterTheDrainBegan counts the pulls that reach the server: a
// server that drains withdraws those that wait and sends none, however many
// jobs there are and however many of its slots become free.
func TestPain80NoPullAfterTheDrainBegan(t *testing.T) {
	const slots, jobs = 4, 20
	s := natsdtest.Start(t)
	q := open(t, natsdtest.JetStreamOn(t, s), queue.Options{})
	var pulls atomic.Int32
	ear := natsdtest.Connect(t, s)
	if _, err := ear.Subscribe("$JS.API.CONSUMER.MSG.NEXT."+queue.ReadyStream+".*", func(*nats.Msg) { pulls.Add(1) }); err != nil {
		t.Fatal(err)
	}
	if err := ear.Flush(); err != nil {
		t.Fatal(err)
	}
	began, release := make(chan struct{}), make(chan struct{})
	stop := serve(t, &queue.Server{Queue: q, Slots: slots, Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		close(began)
		<-release
		if err := d.Ack(ctx); err != nil {
			t.Error(err)
		}
	})})
	get(t, waiting(t, q, slots), "the pulls")
	push(t, q, "running")
	get(t, began, "the handler")
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	for {
		info, err := queue.ConsumerInfo(t.Context(), q, "")
		if err != nil {
			t.Fatal(err)
		}
		if info.NumWaiting == 0 {
			break
		}
	}
	flush(t, ear)
	before := pulls.Load()
	if before < slots {
		t.Errorf("%d pulls were heard before the drain", before)
	}
	for i := range jobs {
		push(t, q, fmt.Sprint("c", i))
	}
	close(release) // a slot is free now
	if err := get(t, ended, "the end of the drain"); err != nil {
		t.Error(err)
	}
	flush(t, ear)
	if n := pulls.Load() - before; n != 0 {
		t.Errorf("%d pulls while draining", n)
	}
	// The consumer's leader may be a little behind those who pushed.
	var d queue.Depth
	for tries := 0; d.Waiting != jobs && tries < 1000; tries++ {
		var err error
		if d, err = q.Depth(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if d.Waiting != jobs || d.InFlight != 0 {
		t.Errorf("Depth = %+v", d)
	}
}

// flush returns when everything that was sent before has been heard.
func flush(t *testing.T, nc *nats.Conn) {
	t.Helper()
	heard := make(chan struct{})
	sub, err := nc.Subscribe(nc.NewInbox(), func(*nats.Msg) { close(heard) })
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish(sub.Subject, nil); err != nil {
		t.Fatal(err)
	}
	get(t, heard, "an echo")
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
}

// TestPain68AStuckConsumerIsRebuilt: a consumer that has work and takers and
// delivers nothing, here since somebody has changed it behind the fleet's back,
// is noticed, told of, and made anew.
func TestPain68AStuckConsumerIsRebuilt(t *testing.T) {
	js := natsdtest.JetStream(t)
	q := open(t, js, queue.Options{AckWait: shortWait * 10})
	log := &safeBuffer{}
	had := make(chan *queue.Delivery, 4)
	s := &queue.Server{Queue: q, Slots: 2, Handler: acks(t, had), Log: slog.New(slog.NewTextHandler(log, nil))}
	queue.Watch(s, 50*time.Millisecond, 200*time.Millisecond)

	if _, err := q.Depth(t.Context(), ""); err != nil { // makes the consumer
		t.Fatal(err)
	}
	push(t, q, "held")
	take(t, js)
	stream, err := js.Stream(t.Context(), queue.ReadyStream)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, s)
	get(t, waiting(t, q, 2), "the pulls")
	c, err := stream.Consumer(t.Context(), "ready-default")
	if err != nil {
		t.Fatal(err)
	}
	config := c.CachedInfo().Config
	config.MaxAckPending = 1
	if _, err := stream.UpdateConsumer(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	push(t, q, "stuck")
	var ids []string
	for range 2 { // what was in flight comes again, too
		ids = append(ids, get(t, had, "a delivery").Job.Call.ToolCallID)
	}
	if slices.Sort(ids); !slices.Equal(ids, []string{"held", "stuck"}) {
		t.Errorf("delivered: %v", ids)
	}
	if !strings.Contains(log.String(), "rebuilding it") {
		t.Errorf("the log does not tell:\n%s", log)
	}
}

// TestPain76NothingWaitsInAClient: behind a worker that takes its time 500 jobs
// are queued, and an idle worker takes all of them.
func TestPain76NothingWaitsInAClient(t *testing.T) {
	const jobs = 500
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	began, release := make(chan struct{}), make(chan struct{})
	serve(t, &queue.Server{Queue: q, Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		close(began)
		<-release
		if err := d.Ack(ctx); err != nil {
			t.Error(err)
		}
	})})
	push(t, q, "slow")
	get(t, began, "the slow handler")
	for i := range jobs {
		push(t, q, fmt.Sprint("c", i))
	}
	had := make(chan *queue.Delivery, jobs)
	serve(t, &queue.Server{Queue: q, Handler: acks(t, had)})
	for range jobs {
		if d := get(t, had, "a delivery"); d.Delivered != 1 {
			t.Errorf("delivery %d of %s", d.Delivered, d.Job.Call.ToolCallID)
		}
	}
	close(release)
}

// TestRoom tells what the queues hold, from an answer of the last second.
func TestRoom(t *testing.T) {
	const size = 64 << 10
	q := open(t, natsdtest.JetStream(t), queue.Options{MaxBytes: size})
	if r := q.Room(t.Context()); r != (queue.Room{}) {
		t.Errorf("empty: %+v", r)
	}
	for i := range 20 {
		push(t, q, fmt.Sprint("c", i))
	}
	var r queue.Room
	for r.Jobs == 0 { // the answer from before the pushes
		r = q.Room(t.Context())
	}
	if r.Jobs != 20 || r.Used < 0.05 || r.Used > 0.5 {
		t.Errorf("with 20 jobs: %+v", r)
	}
}

// BenchmarkPain73RedeliveryBehind50k tells how late the server delivers again what a
// dead worker held, with 50,000 jobs pending: from the end of the ack wait to
// the hand of another worker.
func BenchmarkPain73RedeliveryBehind50k(b *testing.B) {
	const pending, dead, ackWait = 50_000, 100, 2 * time.Second
	js := natsdtest.JetStream(b)
	q := open(b, js, queue.Options{AckWait: ackWait})
	for i := range pending {
		push(b, q, fmt.Sprint("c", i))
	}
	if _, err := q.Depth(b.Context(), ""); err != nil { // makes the consumer
		b.Fatal(err)
	}
	c, err := js.Consumer(b.Context(), queue.ReadyStream, "ready-default")
	if err != nil {
		b.Fatal(err)
	}
	var late []time.Duration
	for b.Loop() {
		taken := map[uint64]time.Time{}
		for range dead {
			msg, meta := next(b, c)
			if msg != nil && meta.NumDelivered == 1 {
				taken[meta.Sequence.Stream] = time.Now()
			}
		}
		for len(taken) > 0 {
			msg, meta := next(b, c)
			if at, ours := taken[meta.Sequence.Stream]; ours {
				late = append(late, time.Since(at)-ackWait)
				delete(taken, meta.Sequence.Stream)
			}
			if err := msg.Ack(); err != nil {
				b.Fatal(err)
			}
		}
	}
	slices.Sort(late)
	b.ReportMetric(float64(late[len(late)/2].Milliseconds()), "p50-late-ms")
	b.ReportMetric(float64(late[len(late)*99/100].Milliseconds()), "p99-late-ms")
}

func next(b *testing.B, c jetstream.Consumer) (jetstream.Msg, *jetstream.MsgMetadata) {
	b.Helper()
	msg, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		b.Fatal(err)
	}
	meta, err := msg.Metadata()
	if err != nil {
		b.Fatal(err)
	}
	return msg, meta
}
