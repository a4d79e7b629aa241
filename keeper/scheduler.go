package keeper

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// Scheduler decides which calls run when: it moves them from CALLS, where they
// wait, to READY, where workers take them. Every dispatcher has one; one in the
// fleet is elected and works, and another takes its place within 15 seconds
// when it dies. Meanwhile calls wait, and nothing is lost.
//
// Admitted to READY are only as many calls as there are slots and a few more,
// and none whose tool or tenant is at its maxInFlight: a worker is never handed
// a call that may not run, so a call that waits has used no attempt.
//
// The fields are set before Run and not changed after it.
type Scheduler struct {
	// Log must be followed whole, and running (see [results.Log.Run]).
	Log   *results.Log
	Queue *queue.Queue
	// ID tells people which process schedules.
	ID string
	// Share says what a tenant may have: its share of the slots in relation to
	// others', and how many of its calls may be with workers at a time, 0 for
	// no limit. It is asked for every call and must not block. nil means that
	// all weigh the same and have no limit.
	Share func(tenant string) (weight, maxInFlight int)
	// Metrics may be nil.
	Metrics *metrics.Metrics
	// Logger takes what goes wrong; nil means nothing is said.
	Logger *slog.Logger

	// term is nil while another process schedules.
	term atomic.Pointer[term]
}

// Run stands for election and schedules while elected, until ctx is done.
func (s *Scheduler) Run(ctx context.Context) error {
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	// A process that is still reading the log's history cannot schedule, and would
	// keep one that can from it.
	if _, err := s.Log.Unfinished(ctx, time.Time{}); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return s.Queue.Lead(ctx, cmp.Or(s.ID, "scheduler"), s.serve)
}

// Schedule queues an admitted job. When this process schedules and the call may
// run now it goes straight to READY: the decision is the same as for one that
// waits, and so is what is counted; only the way through CALLS is saved, which
// is three questions to the server. Any other call waits in CALLS.
//
// A push that fails may have come to READY all the same, so the call keeps its
// place unless it was refused; the keeper queues it again when it is lost.
//
// queue.ErrWaiting when it is queued already, and queue.ErrFull.
func (s *Scheduler) Schedule(ctx context.Context, job catalog.Job) error {
	t := s.term.Load()
	if t == nil || job.Spec == nil || !t.admit(job) {
		return s.Queue.Enqueue(ctx, job)
	}
	ref := results.Ref{Tenant: job.Call.Tenant, Key: job.Call.Key()}
	if s.Log.HasEnded(ref) { // before it was counted: nobody else gives its place back
		t.ended(ref)
		return nil
	}
	err := s.Queue.Push(ctx, job)
	if errors.Is(err, queue.ErrFull) {
		t.release(ref.Key)
	}
	return err
}

// standing is what this process knows of where a call is.
type standing int

const (
	elsewhere standing = iota // another process schedules, and knows
	unheard
	inLine // it waits
	placed // in READY, or on its way there
)

func (s *Scheduler) standing(key call.Key) standing {
	t := s.term.Load()
	if t == nil {
		return elsewhere
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := t.line.calls[idOf(key)]; {
	case e == nil:
		return unheard
	case e.ready:
		return placed
	}
	return inLine
}

// doubtAfter is how old a term has to be to be doubted, so that terms that are
// doubted again and again leave time to work.
const doubtAfter = time.Minute

// errDeaf ends a term that has not heard of a call.
var errDeaf = errors.New("keeper: a call in the queue is not known to the scheduler")

// doubt says that a call is in the queue, and has been for longer than it takes
// to hear of it, and is unknown: the term ends, and the next reads the queue
// anew. Nothing that we know of makes a reader deaf; one that was would keep
// the lease and have calls wait for ever.
func (s *Scheduler) doubt() {
	if t := s.term.Load(); t != nil && time.Since(t.began) > doubtAfter {
		t.end(errDeaf)
	}
}

// serve is one term of office.
func (s *Scheduler) serve(ctx context.Context) {
	t := newTerm(s)
	stop := s.Log.OnResult(t.ended) // before anything is read, so that no end is missed
	defer stop()
	if err := t.takeOver(ctx); err != nil {
		if ctx.Err() == nil {
			s.Logger.Warn("scheduling could not begin; another try follows", "error", err)
		}
		return
	}
	own, end := context.WithCancelCause(ctx)
	defer end(nil)
	t.began, t.end = time.Now(), end
	s.term.Store(t)
	defer s.term.Store(nil)
	s.Logger.Info("this process schedules", "id", s.ID)
	err := t.run(own)
	if ctx.Err() == nil {
		s.Logger.Warn("scheduling ended; another try follows", "after", time.Since(t.began), "error", err)
		return
	}
	s.Logger.Info("this process schedules no more", "id", s.ID)
}
