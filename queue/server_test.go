package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

// shortWait is an ack wait that a test can sit out.
const shortWait = 600 * time.Millisecond

// take takes a job out of the queue as a worker does that then dies: nothing
// more is heard of it.
func take(t *testing.T, js jetstream.JetStream) jetstream.Msg {
	t.Helper()
	c, err := js.Consumer(t.Context(), queue.ReadyStream, "ready-default")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func TestADeadWorkersJobGoesToAnother(t *testing.T) {
	js := natsdtest.JetStream(t)
	q := open(t, js, queue.Options{AckWait: shortWait})
	push(t, q, "c")
	if _, err := q.Depth(t.Context(), ""); err != nil { // makes the consumer
		t.Fatal(err)
	}
	take(t, js)
	had := make(chan *queue.Delivery, 1)
	serve(t, &queue.Server{Queue: q, Handler: acks(t, had)})
	if d := get(t, had, "the redelivery"); d.Delivered != 2 {
		t.Errorf("delivery %d", d.Delivered)
	}
}

// TestPain58ALongHandlerKeepsItsJob: the ack wait bounds the silence of a worker and not
// the time of a job.
func TestPain58ALongHandlerKeepsItsJob(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{AckWait: shortWait})
	var deliveries atomic.Int32
	done := make(chan struct{})
	stop := serve(t, &queue.Server{Queue: q, Slots: 4, Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		deliveries.Add(1)
		<-time.After(4 * shortWait)
		if err := d.Ack(ctx); err != nil {
			t.Error(err)
		}
		close(done)
	})})
	push(t, q, "c")
	get(t, done, "the handler")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if n := deliveries.Load(); n != 1 {
		t.Errorf("%d deliveries", n)
	}
}

func TestADeliveryEndsOnce(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	had := make(chan error, 1)
	serve(t, &queue.Server{Queue: q, Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		err := d.Ack(ctx)
		if d.Retry(ctx, 0) == nil {
			err = errors.New("given back after the ack")
		}
		had <- err
	})})
	push(t, q, "c")
	if err := get(t, had, "the handler"); err != nil {
		t.Error(err)
	}
}

// TestPain74WhatAHandlerDropsComesBack sees a panic and a handler that forgets its
// delivery survived, logged, and the job delivered again.
func TestPain74WhatAHandlerDropsComesBack(t *testing.T) {
	for name, drop := range map[string]func(){
		"panicked": func() { panic("a bug") },
		"neither":  func() {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := open(t, natsdtest.JetStream(t), queue.Options{})
			log := &safeBuffer{}
			had := make(chan *queue.Delivery, 1)
			serve(t, &queue.Server{
				Queue: q, Log: slog.New(slog.NewTextHandler(log, nil)),
				Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
					if d.Delivered == 1 {
						drop()
						return
					}
					acks(t, had).Handle(ctx, d)
				}),
			})
			push(t, q, "c")
			if d := get(t, had, "the second delivery"); d.Delivered != 2 {
				t.Errorf("delivery %d", d.Delivered)
			}
			if !strings.Contains(log.String(), name) {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// safeBuffer is a buffer that a logger and a test may share.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestMessagesNobodyCanRead sees poison dropped, a newer version's job kept,
// and the job behind them handled.
func TestMessagesNobodyCanRead(t *testing.T) {
	js := natsdtest.JetStream(t)
	q := open(t, js, queue.Options{})
	key := func(id string) string { return string(job(id).Call.Key()) }
	for subject, data := range map[string]string{
		key("junk"):    `{"version": 1, "call": [`,
		key("foreign"): `{"version": 1, "call": {"tool": "x"}, "spec": {}}`,
		key("newer"):   fmt.Sprintf(`{"version": %d, "call": "of another shape"}`, call.Version+1),
	} {
		if _, err := js.Publish(t.Context(), "toolfleet.ready.default."+subject, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	had := make(chan *queue.Delivery, 10)
	stop := serve(t, &queue.Server{Queue: q, Handler: acks(t, had)})
	push(t, q, "good")
	if d := get(t, had, "the good job"); d.Job.Call.ToolCallID != "good" {
		t.Errorf("handled %q", d.Job.Call.ToolCallID)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"junk", "foreign"} {
		awaitGone(t, q, call.Key(key(id)))
	}
	if has, err := q.Has(t.Context(), at(call.Key(key("newer")))); !has || err != nil {
		t.Errorf("what a newer worker can read is there: %v, %v", has, err)
	}
}

func TestDrainWaitsThenCancels(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	began, causes := make(chan struct{}), make(chan error, 1)
	s := &queue.Server{Queue: q, Drain: 200 * time.Millisecond, Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		close(began)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		if err := d.Retry(context.WithoutCancel(ctx), 0); err != nil {
			t.Error(err)
		}
	})}
	stop := serve(t, s)
	key := push(t, q, "c")
	get(t, began, "the handler")
	if s.Busy() != 1 {
		t.Errorf("Busy = %d", s.Busy())
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := get(t, causes, "the cause"); !errors.Is(err, queue.ErrDraining) {
		t.Errorf("cause: %v", err)
	}
	if has, err := q.Has(t.Context(), at(key)); !has || err != nil {
		t.Errorf("given back: %v, %v", has, err)
	}
	if s.Busy() != 0 {
		t.Errorf("Busy = %d", s.Busy())
	}
}

func TestHurryEndsADrain(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	began := make(chan struct{})
	s := &queue.Server{Queue: q, Drain: time.Hour, Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		close(began)
		<-ctx.Done()
		_ = d.Ack(context.WithoutCancel(ctx))
	})}
	stop := serve(t, s)
	push(t, q, "c")
	get(t, began, "the handler")
	s.Hurry()
	s.Hurry()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAHandlerThatDoesNotReturnIsReported(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	began, release, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := &queue.Server{
		Queue: q, Drain: 10 * time.Millisecond, Grace: 10 * time.Millisecond,
		Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
			defer close(gone)
			close(began)
			<-release
			_ = d.Ack(context.WithoutCancel(ctx))
		}),
	}
	stop := serve(t, s)
	push(t, q, "c")
	get(t, began, "the handler")
	if err := stop(); err == nil {
		t.Error("Run said nothing")
	} else {
		t.Log(err)
	}
	close(release)
	get(t, gone, "the handler's end")
}

// TestPain80ADrainingServerKeepsNothing drains a server while jobs are pushed. What
// it was being handed at that moment must be given back: the ack wait, which
// would bring it back too, is longer than the test.
//
// This is a promise of one server. In a cluster a delivery may be on its way from
// another server when this one has forgotten who asked; it comes back after the
// ack wait.
func TestPain80ADrainingServerKeepsNothing(t *testing.T) {
	const rounds, jobs = 10, 20
	alone := natsdtest.StartWith(t, natsd.Config{StoreDir: t.TempDir(), Port: natsd.RandomPort})
	q := open(t, natsdtest.JetStreamOn(t, alone), queue.Options{AckWait: time.Hour})
	for round := range rounds {
		had := make(chan *queue.Delivery, jobs)
		first := serve(t, &queue.Server{Queue: q, Slots: 8, Handler: acks(t, had)})
		get(t, waiting(t, q, 8), "eight pulls")
		for i := range jobs {
			push(t, q, fmt.Sprint(round, "-", i))
			if i == jobs/2 {
				go func() { _ = first() }()
			}
		}
		_ = first()
		second := serve(t, &queue.Server{Queue: q, Slots: 8, Handler: acks(t, had)})
		for range jobs {
			get(t, had, "a delivery")
		}
		if err := second(); err != nil {
			t.Error(err)
		}
	}
}

// waiting is closed once n pulls wait at the server.
func waiting(t *testing.T, q *queue.Queue, n int) <-chan struct{} {
	t.Helper()
	ch := make(chan struct{})
	for {
		info, err := queue.ConsumerInfo(t.Context(), q, "")
		switch {
		case err == nil && info.NumWaiting >= n:
			close(ch)
			return ch
		case t.Context().Err() != nil:
			t.Fatalf("waiting for %d pulls: %v", n, err)
		}
	}
}

func TestAServerThatIsNotReadyTakesNothing(t *testing.T) {
	q := open(t, natsdtest.JetStream(t), queue.Options{})
	var ready atomic.Bool
	asked := make(chan struct{}, 1)
	had := make(chan *queue.Delivery, 1)
	serve(t, &queue.Server{Queue: q, Handler: acks(t, had), Ready: func() bool {
		select {
		case asked <- struct{}{}:
		default:
		}
		return ready.Load()
	}})
	push(t, q, "c")
	for range 3 {
		get(t, asked, "the question")
	}
	if d, err := q.Depth(t.Context(), ""); err != nil || d.Waiting != 1 || d.InFlight != 0 || d.Free != 0 {
		t.Errorf("Depth = %+v, %v", d, err)
	}
	ready.Store(true)
	get(t, had, "the delivery")
}

func TestAConsumerThatVanishesIsMadeAnew(t *testing.T) {
	js := natsdtest.JetStream(t)
	q := open(t, js, queue.Options{})
	had := make(chan *queue.Delivery, 1)
	serve(t, &queue.Server{Queue: q, Slots: 3, Handler: acks(t, had)})
	for i := range 3 {
		get(t, waiting(t, q, 3), "three pulls")
		if err := js.DeleteConsumer(t.Context(), queue.ReadyStream, "ready-default"); err != nil {
			t.Fatal(err)
		}
		push(t, q, fmt.Sprint("c", i))
		get(t, had, "the delivery")
	}
}

func TestARestartOfTheServerIsSurvived(t *testing.T) {
	dir := t.TempDir()
	s := natsdtest.StartWith(t, natsd.Config{StoreDir: dir, Port: natsd.RandomPort})
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	q := open(t, js, queue.Options{})
	had := make(chan *queue.Delivery, 1)
	began, goOn := make(chan struct{}), make(chan struct{})
	serve(t, &queue.Server{Queue: q, Slots: 2, Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		if d.Job.Call.ToolCallID == "during" {
			close(began)
			<-goOn
		}
		acks(t, had).Handle(ctx, d)
	})})
	push(t, q, "during")
	get(t, began, "the handler")

	port := nc.ConnectedAddr()
	s.Shutdown()
	close(goOn) // the ack has nowhere to go yet
	restart(t, dir, port)

	if d := get(t, had, "the ack after the restart"); d.Job.Call.ToolCallID != "during" {
		t.Errorf("handled %s", d.Job.Call.ToolCallID)
	}
	push(t, q, "after")
	if d := get(t, had, "the job after the restart"); d.Job.Call.ToolCallID != "after" {
		t.Errorf("handled %s", d.Job.Call.ToolCallID)
	}
}

// restart starts a server where the last one was.
func restart(t *testing.T, dir, addr string) {
	t.Helper()
	var port int
	if _, err := fmt.Sscanf(addr[strings.LastIndexByte(addr, ':'):], ":%d", &port); err != nil {
		t.Fatal(err)
	}
	natsdtest.StartWith(t, natsd.Config{StoreDir: dir, Port: port})
}

// TestJobsThatTheConsumerLost puts a consumer into the state in which a killed
// server may come back: its floor is past jobs that nobody acknowledged.
func TestJobsThatTheConsumerLost(t *testing.T) {
	js := natsdtest.JetStream(t)
	q := open(t, js, queue.Options{})
	push(t, q, "lost 1")
	push(t, q, "lost 2")
	push(t, q, "in flight")
	if _, err := q.Depth(t.Context(), ""); err != nil { // makes the consumer
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), queue.ReadyStream)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.ResetConsumerToSequence(t.Context(), "ready-default", 3); err != nil {
		t.Fatal(err)
	}
	take(t, js)
	info, err := queue.ConsumerInfo(t.Context(), q, "")
	if err != nil {
		t.Fatal(err)
	}
	if info.AckFloor.Stream != 2 || info.NumPending != 0 || info.NumAckPending != 1 {
		t.Fatalf("the consumer is not in the state to mend: %+v", info)
	}
	if n, err := queue.Adopt(t.Context(), q, queue.DefaultClass, info.AckFloor.Stream); n != 2 || err != nil {
		t.Errorf("%d jobs were taken out: %v", n, err)
	}
	if n, err := queue.Adopt(t.Context(), q, queue.DefaultClass, info.AckFloor.Stream); n != 0 || err != nil {
		t.Errorf("the second time %d jobs were taken out: %v", n, err)
	}
	push(t, q, "lost 1") // as the keeper does
	push(t, q, "lost 2")
	had := make(chan *queue.Delivery, 3)
	serve(t, &queue.Server{Queue: q, Handler: acks(t, had)})
	for range 2 {
		if d := get(t, had, "a lost job"); d.Delivered != 1 || !strings.HasPrefix(d.Job.Call.ToolCallID, "lost") {
			t.Errorf("delivery %d of %s", d.Delivered, d.Job.Call.ToolCallID)
		}
	}
}

// TestARemovedJobLeavesTheOthers removes a job while an older one is in the
// hands of a worker that dies, and a younger one is then acknowledged: the older
// one comes again.
func TestARemovedJobLeavesTheOthers(t *testing.T) {
	js := natsdtest.JetStream(t)
	q := open(t, js, queue.Options{AckWait: shortWait})
	push(t, q, "older")
	removed := push(t, q, "removed")
	push(t, q, "younger")
	if _, err := q.Depth(t.Context(), ""); err != nil { // makes the consumer
		t.Fatal(err)
	}
	take(t, js)
	take(t, js)
	younger := take(t, js)
	if err := q.Remove(t.Context(), at(removed)); err != nil {
		t.Fatal(err)
	}
	if err := younger.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	had := make(chan *queue.Delivery, 1)
	serve(t, &queue.Server{Queue: q, Handler: acks(t, had)})
	if d := get(t, had, "the older job"); d.Job.Call.ToolCallID != "older" || d.Delivered != 2 {
		t.Errorf("delivery %d of %s", d.Delivered, d.Job.Call.ToolCallID)
	}
}

// TestRemovedByTwo removes each job from two sides at once, as a worker's
// acknowledgement and the keeper do: neither fails.
func TestRemovedByTwo(t *testing.T) {
	js := natsdtest.JetStream(t)
	q := open(t, js, queue.Options{})
	for i := range 200 {
		key := push(t, q, fmt.Sprint("c", i))
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := q.Remove(t.Context(), at(key)); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if has, err := q.Has(t.Context(), at(key)); err != nil || has {
			t.Fatalf("it is still there: %v", err)
		}
	}
}
