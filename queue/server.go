package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"

	"github.com/toolfleet/toolfleet/metrics"
)

// Handler works on one delivery. It ends every delivery by Ack or Retry; one
// that returns without either is given back by the server, with a log line.
// Its context is cancelled, with [ErrDraining] as the cause, when the drain
// time is over.
type Handler interface {
	Handle(ctx context.Context, d *Delivery)
}

// HandlerFunc is a function that is a [Handler].
type HandlerFunc func(ctx context.Context, d *Delivery)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, d *Delivery) { f(ctx, d) }

// Server runs slots. Its fields must not change once Run was called; a Server
// is run once.
type Server struct {
	Queue   *Queue
	Handler Handler
	// Class is the class of jobs taken; empty means "default".
	Class string
	// Slots is how many deliveries are worked on at once; less than 1 means 1.
	Slots int
	// Ready says whether the worker can work; nil means always. A server that
	// is not ready pulls nothing.
	Ready func() bool
	// Drain is how long handlers may go on once ctx is done; 0 means 60 s.
	Drain time.Duration
	// Grace is how long handlers may take to return once their contexts are
	// cancelled; 0 means 30 s.
	Grace time.Duration
	// Log takes what goes wrong; nil means nothing is said.
	Log *slog.Logger
	// Metrics may be nil.
	Metrics *metrics.Metrics

	// watchEvery and stuckAfter are the watchdog's, but in tests.
	watchEvery, stuckAfter time.Duration

	// making is held by the one that makes or removes the consumer. When both are
	// done at once the server may leave the new one with the old one's state.
	making sync.Mutex

	busy    atomic.Int64
	failing atomic.Bool // since a pull failed, until one works
	once    sync.Once
	hurried chan struct{}
}

const (
	// readyEvery is how often a server that is not ready looks again.
	readyEvery = 100 * time.Millisecond
	// giveBackDelay keeps a delivery that its handler dropped, or that this
	// worker cannot read, from coming back at once.
	giveBackDelay = 5 * time.Second
	newerDelay    = 30 * time.Second
	// settleTimeout bounds the settling that the server does by itself.
	settleTimeout = 10 * time.Second
)

func (s *Server) init() {
	s.once.Do(func() {
		s.hurried = make(chan struct{}, 1)
	})
}

// Run pulls until ctx is done, then drains, and returns when every handler
// has: stop pulling, wait for the handlers up to Drain, cancel their contexts
// with [ErrDraining], wait up to Grace. It fails when the class is none, or
// when handlers were still at work at the end.
func (s *Server) Run(ctx context.Context) error {
	s.init()
	class, err := classOf(s.Class)
	if err != nil {
		return err
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.repair(ctx, class, nil) // the first pull should find a consumer
	// Handlers outlive ctx: their contexts keep its values only.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var slots, watch sync.WaitGroup
	for range max(s.Slots, 1) {
		slots.Go(func() { s.slot(ctx, work, class) })
	}
	watch.Go(func() { s.watch(ctx, class) })
	defer watch.Wait()

	<-ctx.Done()
	done := make(chan struct{})
	go func() { slots.Wait(); close(done) }() // ends with the last handler
	if s.await(done, or(s.Drain, 60*time.Second)) {
		return nil
	}
	cancel(ErrDraining)
	if !s.awaitGrace(done) {
		return fmt.Errorf("queue: %d handlers did not return within %s of being cancelled", s.Busy(), or(s.Grace, 30*time.Second))
	}
	return nil
}

func or(d, zero time.Duration) time.Duration {
	if d == 0 {
		return zero
	}
	return d
}

// await waits for done, for at most d, or until somebody hurries.
func (s *Server) await(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-s.hurried:
	}
	return false
}

func (s *Server) awaitGrace(done <-chan struct{}) bool {
	timer := time.NewTimer(or(s.Grace, 30*time.Second))
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Hurry ends a drain now: handlers' contexts are cancelled at once.
func (s *Server) Hurry() {
	s.init()
	select {
	case s.hurried <- struct{}{}:
	default: // somebody hurried already
	}
}

// Busy is how many slots are in use.
func (s *Server) Busy() int { return int(s.busy.Load()) }

// isReady reports whether there is any use in a pull. One that is sent while the
// server is away only waits in the client's buffer.
func (s *Server) isReady() bool { return s.connected() && (s.Ready == nil || s.Ready()) }

func (s *Server) connected() bool { return s.Queue.js.Conn().IsConnected() }

// slot takes one delivery after another until ctx is done. Deliveries are
// handled under work.
func (s *Server) slot(ctx, work context.Context, class string) {
	p := newPuller(s.Queue, class)
	defer p.end()
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		if !s.isReady() {
			p.close()
			pause(ctx, readyEvery)
			continue
		}
		msg, err := p.next(ctx)
		switch {
		case err == nil:
			s.works(class)
			b.Reset()
			if msg != nil {
				s.take(ctx, work, msg)
			}
		case errors.Is(err, errAway):
			pause(ctx, readyEvery) // the connection says so a moment later
		case ctx.Err() == nil:
			s.repair(ctx, class, err)
			pause(ctx, b.NextBackOff())
		}
	}
}

// works notes that pulls work, or do again.
func (s *Server) works(class string) {
	if s.failing.Swap(false) {
		s.Log.Info("pulling from the queue again", "class", class)
	}
}

// repair makes the consumer anew when it may be gone. Creating one that is
// there changes nothing.
func (s *Server) repair(ctx context.Context, class string, cause error) {
	s.making.Lock()
	defer s.making.Unlock()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_, err := s.Queue.consumer(ctx, class)
	if err != nil && ctx.Err() == nil && !s.failing.Swap(true) { // once, not once a slot
		s.Log.Warn("cannot pull from the queue; trying again", "class", class, "error", errors.Join(cause, err))
	}
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// take reads a message and has it handled, or says what becomes of it. What
// arrives when ctx is done, which is a drain, or while the server is not ready,
// goes back at once.
func (s *Server) take(ctx, work context.Context, msg *nats.Msg) {
	s.busy.Add(1)
	defer s.busy.Add(-1)
	d, err := newDelivery(s.Queue.js.Conn(), msg)
	if d.Delivered > 1 {
		s.Metrics.Redelivered()
	}
	switch {
	case errors.Is(err, errNewer):
		s.Log.Warn("job left to a newer worker", "subject", msg.Subject, "error", err)
		s.settle(work, d, func(ctx context.Context) error { return d.Retry(ctx, newerDelay) })
	case err != nil:
		s.Log.Error("message dropped from the queue", "subject", msg.Subject, "bytes", len(msg.Data), "error", err)
		s.settle(work, d, d.terminate)
	case ctx.Err() != nil, !s.isReady():
		s.settle(work, d, func(ctx context.Context) error { return d.Retry(ctx, 0) })
	default:
		s.handle(work, d)
	}
}

// handle runs the handler with a heartbeat beside it.
func (s *Server) handle(work context.Context, d *Delivery) {
	ctx, cancel := context.WithCancel(work)
	var beat sync.WaitGroup
	beat.Go(func() { d.beat(ctx, s.Queue.opts.AckWait/3) })
	s.call(ctx, d)
	cancel()
	beat.Wait()
	switch d.end.Load() {
	case endAck:
		s.Metrics.Delivery("ack")
		return
	case endRetry:
		s.Metrics.Delivery("retry")
		return
	}
	s.Metrics.Delivery("abandoned")
	s.Log.Error("handler neither acknowledged nor gave back its delivery", "call", d.Job.Call.Key())
	s.settle(work, d, func(ctx context.Context) error { return d.Retry(ctx, giveBackDelay) })
}

// call runs the handler. A panic in it is a bug of ours, not of a tool: tools
// run elsewhere.
func (s *Server) call(ctx context.Context, d *Delivery) {
	defer func() {
		if r := recover(); r != nil {
			s.Log.Error("handler panicked", "call", d.Job.Call.Key(), "panic", r, "stack", string(debug.Stack()))
		}
	}()
	s.Handler.Handle(ctx, d)
}

// settle ends a delivery on the server's own account, also while draining.
func (s *Server) settle(work context.Context, d *Delivery, end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(work), settleTimeout)
	defer cancel()
	if err := end(ctx); err != nil {
		s.Log.Warn("delivery not settled, the ack wait will give it back", "call", d.Job.Call.Key(), "error", err)
	}
}
