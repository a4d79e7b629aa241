package queue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

func TestRegistry(t *testing.T) {
	r, err := queue.OpenRegistry(t.Context(), natsdtest.JetStream(t), queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.Patience = 0
	start := func(incarnation string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan struct{})
		once := sync.OnceFunc(func() { close(asked) })
		done := make(chan error, 1)
		go func() {
			done <- r.Run(ctx, func() queue.WorkerInfo {
				once()
				return queue.WorkerInfo{ID: "w", Incarnation: incarnation, Class: "default", Slots: 4}
			})
		}()
		get(t, asked, "the first beat")
		awaitAlive(t, r, incarnation, true)
		return func() {
			cancel()
			if err := get(t, done, "the end of Run"); err != nil {
				t.Error(err)
			}
		}
	}
	stopFirst := start("1")
	stopSecond := start("2") // the worker was started again
	awaitAlive(t, r, "1", false)
	stopFirst() // late, and must not sign the second one off
	awaitAlive(t, r, "2", true)
	list, err := r.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Incarnation != "2" || list[0].Slots != 4 {
		t.Errorf("List = %+v, %v", list, err)
	}
	stopSecond()
	awaitAlive(t, r, "2", false)
	if list, err := r.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("List = %+v, %v", list, err)
	}
}

// A worker that drains is over with it before its next beat would be due.
func TestRegistryTellsWithoutWaiting(t *testing.T) {
	r, err := queue.OpenRegistry(t.Context(), natsdtest.JetStream(t), queue.Options{AckWait: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var draining atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- r.Run(ctx, func() queue.WorkerInfo {
			return queue.WorkerInfo{ID: "w", Incarnation: "1", Class: "default", Draining: draining.Load()}
		})
	}()
	defer func() {
		stop()
		if err := get(t, done, "the end of Run"); err != nil {
			t.Error(err)
		}
	}()
	awaitAlive(t, r, "1", true)
	draining.Store(true)
	r.Tell()
	for limit := time.Now().Add(30 * time.Second); ; {
		list, err := r.List(t.Context())
		if err == nil && len(list) == 1 && list[0].Draining {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("List = %+v, %v", list, err)
		}
	}
}

// A worker that was killed is counted once, and one that left is not.
func TestRegistryCountsTheLost(t *testing.T) {
	js := natsdtest.JetStream(t)
	r, err := queue.OpenRegistry(t.Context(), js, queue.Options{AckWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.Patience = 0
	lost := func() int {
		n, err := r.Lost(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := lost(); n != 0 {
		t.Errorf("%d lost of none", n)
	}
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- r.Run(ctx, func() queue.WorkerInfo { return queue.WorkerInfo{ID: "w", Incarnation: "1"} })
	}()
	awaitAlive(t, r, "1", true)
	leave()
	if err := get(t, done, "the end of Run"); err != nil {
		t.Error(err)
	}
	awaitAlive(t, r, "1", false)
	kv, err := js.KeyValue(t.Context(), queue.WorkersBucket)
	if err != nil {
		t.Fatal(err)
	}
	// What it left of itself expires too, and must not look like a death.
	gone := func() bool {
		status, err := kv.Status(t.Context())
		return err == nil && status.Values() == 0
	}
	for limit := time.Now().Add(30 * time.Second); !gone(); <-time.After(20 * time.Millisecond) {
		if n := lost(); n != 0 {
			t.Fatalf("%d lost of one that left", n)
		}
		if time.Now().After(limit) {
			t.Fatal("the leave never expires")
		}
	}
	if n := lost(); n != 0 {
		t.Errorf("%d lost of one that left", n)
	}
	// One beat, and no more: what a killed worker leaves.
	if _, err := kv.Put(t.Context(), "w", []byte(`{"id":"w","incarnation":"2"}`)); err != nil {
		t.Fatal(err)
	}
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	n := 0
	for limit := time.After(30 * time.Second); n == 0; n = lost() {
		select {
		case <-look.C:
		case <-limit:
			t.Fatal("a worker that was killed is not counted")
		}
	}
	if again := lost(); n != 1 || again != 0 {
		t.Errorf("counted as %d, then %d", n, again)
	}
}

// awaitAlive asks until the answer is the one wanted.
func awaitAlive(t *testing.T, r *queue.Registry, incarnation string, want bool) {
	t.Helper()
	limit := time.Now().Add(30 * time.Second)
	for {
		alive, err := r.Alive(t.Context(), "w", incarnation)
		if err == nil && alive == want {
			return
		}
		// A cluster may say for a moment that it has no bucket that it just made.
		if time.Now().After(limit) {
			t.Fatalf("waited in vain for alive = %v: %v, %v", want, alive, err)
		}
	}
}

// TestAWorkerThatCannotBeatKnows loses the bucket, as one whose disk is full is
// lost.
func TestAWorkerThatCannotBeatKnows(t *testing.T) {
	js := natsdtest.JetStream(t)
	r, err := queue.OpenRegistry(t.Context(), js, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.Patience = 0
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- r.Run(ctx, func() queue.WorkerInfo { return queue.WorkerInfo{ID: "w", Incarnation: "1"} })
	}()
	awaitAlive(t, r, "1", true)
	if err := r.Beating(); err != nil {
		t.Error(err)
	}
	if err := js.DeleteKeyValue(t.Context(), queue.WorkersBucket); err != nil {
		t.Fatal(err)
	}
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for limit := time.After(30 * time.Second); r.Beating() == nil; {
		select {
		case <-look.C:
		case <-limit:
			t.Fatal("a worker that cannot beat thinks it does")
		}
	}
	cancel()
	get(t, done, "the end of Run")
}

// TestTheDeadAreKnownAfterAWhile: right after an outage of the server, when no
// worker can have beaten yet, none is dead.
func TestTheDeadAreKnownAfterAWhile(t *testing.T) {
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
	r, err := queue.OpenRegistry(t.Context(), js, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if alive, err := r.Alive(t.Context(), "w", "1"); err != nil || !alive {
		t.Errorf("at the start alive is %v: %v", alive, err)
	}
	r.Patience = 300 * time.Millisecond
	awaitAlive(t, r, "1", false)

	addr := nc.ConnectedAddr()
	back := nc.StatusChanged(nats.CONNECTED)
	s.Shutdown()
	restart(t, dir, addr)
	get(t, back, "the connection")
	if alive, err := r.Alive(t.Context(), "w", "1"); err != nil || !alive {
		t.Errorf("after the outage alive is %v: %v", alive, err)
	}
	awaitAlive(t, r, "1", false)
}

// TestWhatDidNotAnswerTookNoBeats: a bucket without a leader loses entries by age
// and takes no new ones, while the connection to a server stays as it is.
func TestWhatDidNotAnswerTookNoBeats(t *testing.T) {
	r, err := queue.OpenRegistry(t.Context(), natsdtest.JetStream(t), queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.Patience = time.Second
	awaitAlive(t, r, "1", false)
	unanswered, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Alive(unanswered, "w", "1"); err == nil {
		t.Fatal("a question that nobody heard was answered")
	}
	if alive, err := r.Alive(t.Context(), "w", "1"); err != nil || !alive {
		t.Errorf("right after a question without an answer alive is %v: %v", alive, err)
	}
	awaitAlive(t, r, "1", false)
}

// TestADeadWorkerIsGoneWithinThreeHeartbeats has a worker beat once and then be
// silent, as one that was killed is.
func TestADeadWorkerIsGoneWithinThreeHeartbeats(t *testing.T) {
	t.Parallel()
	r, err := queue.OpenRegistry(t.Context(), natsdtest.JetStream(t), queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.Patience = 0
	if err := queue.Beat(t.Context(), r, queue.WorkerInfo{ID: "w", Incarnation: "1", Slots: 4, Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	list, err := r.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Slots != 4 || list[0].Version != "v1" || list[0].Beat.IsZero() {
		t.Fatalf("List = %+v, %v", list, err)
	}
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for len(list) > 0 {
		<-look.C
		if list, err = r.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The list is a few requests, and the server expires a little late.
		if len(list) > 0 && time.Since(list[0].Beat) > queue.WorkerTTL+10*time.Second {
			t.Fatalf("still there %s after its heartbeat", time.Since(list[0].Beat))
		}
	}
	awaitAlive(t, r, "1", false)
}
