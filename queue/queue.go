package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// Sentinels.
var (
	// ErrWaiting says that the job is in the queue already.
	ErrWaiting = errors.New("queue: the job is waiting already")
	// ErrFull says that the queue takes no more.
	ErrFull = errors.New("queue: full")
	// ErrDraining is the cause of a handler's cancelled context when the
	// worker has to stop before the handler was done.
	ErrDraining = errors.New("queue: worker is draining")
)

// Queue holds TOOLFLEET_CALLS and TOOLFLEET_READY. It is safe for concurrent use.
type Queue struct{}

// Options of [Open].
type Options struct {
	// MaxBytes bounds each stream; 0 means 1 GiB.
	MaxBytes int64
}

// Open creates or checks the streams.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Queue, error) {
	panic("unwritten")
}

// Push puts a job into READY. ErrWaiting when it is there already.
func (q *Queue) Push(ctx context.Context, job catalog.Job) error { panic("unwritten") }

// Remove takes a job away, wherever it waits. Removing one that is not there
// is no error.
func (q *Queue) Remove(ctx context.Context, class string, key call.Key) error { panic("unwritten") }

// Depth is how many jobs wait and how many are being worked on.
type Depth struct{ Waiting, InFlight int }

// Depth asks the server.
func (q *Queue) Depth(ctx context.Context, class string) (Depth, error) { panic("unwritten") }

// Delivery is one job in one slot's hands.
type Delivery struct {
	Job catalog.Job
	// Delivered counts deliveries, 1 for the first.
	Delivered int
}

// Ack ends the delivery for good.
func (d *Delivery) Ack(ctx context.Context) error { panic("unwritten") }

// Retry gives the job back; it is delivered again after delay.
func (d *Delivery) Retry(ctx context.Context, delay time.Duration) error { panic("unwritten") }

// Handler works on one delivery. It ends every delivery by Ack or Retry; one
// that returns without either is given back by the server, with a log line.
// Its context is cancelled, with [ErrDraining] as the cause, when the drain
// time is over.
type Handler interface {
	Handle(ctx context.Context, d *Delivery)
}

// Server runs slots.
type Server struct {
	Queue   *Queue
	Handler Handler
	// Class is the class of jobs taken; empty means "default".
	Class string
	// Slots is how many deliveries are worked on at once.
	Slots int
	// Ready says whether the worker can work; nil means always. A server that
	// is not ready pulls nothing.
	Ready func() bool
	// Drain is how long handlers may go on once ctx is done; 0 means 60 s.
	Drain time.Duration
	Log   *slog.Logger
}

// Run pulls until ctx is done, then drains, and returns when every handler has.
func (s *Server) Run(ctx context.Context) error { panic("unwritten") }

// Hurry ends a drain now: handlers' contexts are cancelled at once.
func (s *Server) Hurry() { panic("unwritten") }

// Busy is how many slots are in use.
func (s *Server) Busy() int { panic("unwritten") }
