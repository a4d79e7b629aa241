package keeper

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

const (
	// movers is how many calls are on their way to READY at a time.
	movers = 8
	// moveTimeout bounds one move. It is finished at the end of a term: half of
	// one does no harm, but makes work for the next.
	moveTimeout = 5 * time.Second
	// movePause is the pause after a move that failed.
	movePause = 500 * time.Millisecond
	// How often the slots of a class are looked at: while nothing waits, while
	// something does, and at most.
	lookIdle   = time.Second
	lookBusy   = 200 * time.Millisecond
	lookAtMost = 20 * time.Millisecond
)

// term is a scheduler while it is elected.
type term struct {
	*Scheduler
	began time.Time
	// end ends the term; another follows.
	end context.CancelCauseFunc
	// wake has one entry when there may be something to move, look when slots
	// should be counted.
	wake, look chan struct{}
	failing    atomic.Bool

	mu   sync.Mutex // guards what follows
	line *line
	// early are calls whose end came before the take-over was done; nil
	// afterwards.
	early []call.Key
	// stale are jobs in CALLS whose calls have ended, and again calls that have
	// their place and are in CALLS all the same.
	stale []uint64
	again []*entry
}

func newTerm(s *Scheduler) *term {
	share := s.Share
	if share == nil {
		share = equalShares
	}
	return &term{
		Scheduler: s, line: newLine(share), early: []call.Key{},
		wake: make(chan struct{}, 1), look: make(chan struct{}, 1),
	}
}

// poke makes whoever waits at ch look again.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default: // it is going to
	}
}

// takeOver finds out what is in READY. Whose calls they are, the log's index
// knows.
func (t *term) takeOver(ctx context.Context) error {
	ready, err := t.Queue.Ready(ctx)
	if err != nil {
		return err
	}
	open, err := t.Log.Unfinished(ctx, t.Log.Now().Add(time.Hour))
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, u := range open {
		if class, ok := ready[u.Key]; ok {
			t.line.restore(queue.Address{Class: class, Tenant: u.Tenant, Tool: u.Tool, Key: u.Key})
		}
	}
	for _, key := range t.early {
		t.line.end(idOf(key))
	}
	t.early = nil
	return nil
}

// run schedules until ctx is done or the queue cannot be read any more.
func (t *term) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.Queue.Waits(ctx, t.told) })
	g.Go(func() error { t.count(ctx); return nil })
	for range movers {
		g.Go(func() error { t.move(ctx); return nil })
	}
	return g.Wait()
}

// told takes a call that waits in CALLS.
func (t *term) told(w queue.Waiting) {
	t.mu.Lock()
	if e := t.line.add(w); e != nil {
		t.again = append(t.again, e)
	}
	idle := t.line.class(w.Class).places == 0
	t.mu.Unlock()
	// In the index first and then told of: its end has been missed.
	if ref := (results.Ref{Tenant: w.Tenant, Key: w.Key}); t.Log.HasEnded(ref) {
		t.ended(ref)
	}
	if idle {
		poke(t.look)
	}
	poke(t.wake)
}

// ended frees the place of a call that has its result.
func (t *term) ended(ref results.Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.early != nil {
		t.early = append(t.early, ref.Key)
		return
	}
	if seq, waited := t.line.end(idOf(ref.Key)); waited {
		t.stale = append(t.stale, seq)
	}
	poke(t.wake)
}

// admit reports whether a call may go straight to READY, and counts it there.
func (t *term) admit(job catalog.Job) bool {
	a := queue.AddressOf(job)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line.admit(a, job.Spec.MaxInFlight, t.Log.Now()) {
		return true
	}
	if t.line.class(a.Class).places == 0 {
		poke(t.look)
	}
	return false
}

// release frees the place of a call that did not come to READY.
func (t *term) release(key call.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line.end(idOf(key))
	poke(t.wake)
}

// move takes calls to READY, and what has ended out of CALLS, until ctx is done.
func (t *term) move(ctx context.Context) {
	for ctx.Err() == nil {
		e, seq := t.next()
		if seq == 0 {
			select {
			case <-ctx.Done():
			case <-t.wake:
			}
			continue
		}
		poke(t.wake) // there may be more, for another mover
		t.carry(ctx, e, seq)
	}
}

// carry moves one call, however many tries that takes: it has its place all the
// while, for nobody knows of a move that failed whether it is in READY.
func (t *term) carry(ctx context.Context, e *entry, seq uint64) {
	for ctx.Err() == nil {
		if e != nil && !t.holds(e) {
			e = nil // it has ended: what is left in CALLS is dropped
		}
		err := t.moveOne(ctx, e, seq)
		if err == nil {
			if t.failing.Swap(false) {
				t.Logger.Info("calls are moved to READY again")
			}
			return
		}
		if !t.failing.Swap(true) {
			t.Logger.Warn("calls cannot be moved to READY; trying again", "error", err)
		}
		pause(ctx, movePause)
	}
}

// holds reports whether a call is what the line knows of it.
func (t *term) holds(e *entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.line.calls[e.id] == e
}

// next chooses what to move: e is nil for a job that is to be dropped, and seq
// 0 when there is nothing to do.
func (t *term) next() (e *entry, seq uint64) {
	now := t.Log.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.stale); n > 0 {
		seq = t.stale[n-1]
		t.stale = t.stale[:n-1]
		return nil, seq
	}
	if n := len(t.again); n > 0 {
		e := t.again[n-1]
		t.again = t.again[:n-1]
		return e, e.seq
	}
	for _, c := range t.line.classes {
		if e := t.line.next(c, now); e != nil {
			return e, e.seq
		}
	}
	return nil, 0
}

func (t *term) moveOne(ctx context.Context, e *entry, seq uint64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveTimeout)
	defer cancel()
	if e == nil {
		return t.Queue.Drop(ctx, seq)
	}
	// One that is not there any more has ended, and its result is on its way
	// here; or it is in READY, by an earlier try of ours or a leader before us.
	_, err := t.Queue.Promote(ctx, seq)
	return err
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

// count keeps up how many places each class has, until ctx is done.
//
// It asks the consumer, not the register of workers: the deliveries that are
// out and the pulls that wait are the slots of all workers who work, at this
// moment. A worker that drains pulls no more, one that died is gone with its
// connection, and a call that was given back to be tried in half a minute,
// which keeps its place here, is among the deliveries and takes nobody's slot.
func (t *term) count(ctx context.Context) {
	defer func() {
		for name := range t.classes() {
			t.Metrics.SetWaiting(name, 0)
		}
		t.Metrics.SetTenantJobs(nil)
	}()
	for ctx.Err() == nil {
		every := lookIdle
		t.Metrics.SetTenantJobs(t.tenants())
		for name, waiting := range t.classes() {
			t.Metrics.SetWaiting(name, waiting)
			if waiting > 0 {
				every = lookBusy
			}
			t.countClass(ctx, name)
		}
		pause(ctx, lookAtMost)
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
		case <-t.look:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// classes are those known, and how many calls wait in each.
func (t *term) classes() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := make(map[string]int, len(t.line.classes))
	for name, c := range t.line.classes {
		waiting[name] = c.waiting
	}
	return waiting
}

// tenants are those that have calls, and how many of them.
func (t *term) tenants() map[string]metrics.TenantJobs {
	t.mu.Lock()
	defer t.mu.Unlock()
	jobs := make(map[string]metrics.TenantJobs, len(t.line.tenants))
	for name, p := range t.line.tenants {
		jobs[name] = metrics.TenantJobs{Waiting: p.calls - p.ready, Placed: p.ready}
	}
	return jobs
}

// countClass counts the places of a class. When the server does not answer, what
// was counted last stands.
func (t *term) countClass(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	d, err := t.Queue.Depth(ctx, name)
	if err != nil {
		return
	}
	places := placesFor(d.InFlight + d.Free)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line.class(name).places = places
	poke(t.wake)
}
