package keeper

import (
	"time"

	"github.com/toolfleet/toolfleet/queue"
)

// ageing is how long a batch call waits before it competes as an interactive
// one: late, but not never.
const ageing = 5 * time.Minute

// line is the calls that wait and those that are in READY, and decides which of
// the first may join the second. It is the whole policy of the scheduler, and
// knows neither queue nor clock. It is not safe for concurrent use.
//
// A call may run when its class has a place, its tenant and its tool are below
// their maxInFlight, and no other call goes before it. Interactive calls go
// before batch calls; within the same rank tenants take turns, each as many
// calls as its weight (deficit round robin in which every call costs one: how
// long it will run nobody knows); within a tenant the call goes that has waited
// longest. A tenant or a tool that is busy is passed over, and what is behind
// it does not wait for it.
type line struct {
	// share is what a tenant may have (see [Scheduler.Share]).
	share func(tenant string) (weight, maxInFlight int)

	calls   map[id]*entry
	classes map[string]*class
	// tenants and tools are those that have any calls here.
	tenants, tools map[string]*party
}

func newLine(share func(string) (int, int)) *line {
	return &line{share: share, calls: map[id]*entry{}, classes: map[string]*class{}, tenants: map[string]*party{}, tools: map[string]*party{}}
}

// The ranks of a choice, the first before the second.
const (
	urgent = iota // interactive calls, and batch calls that are old
	everyCall
	ranks
)

// class is the calls that one kind of worker runs.
type class struct {
	name string
	// places is how many calls may be in READY at a time.
	places         int
	waiting, ready int

	flows map[string]*flow // by tenant, of those that have calls waiting
	ring  []*flow          // the same, in the order of their turns
	turn  [ranks]int       // an index into ring
}

// flow is what waits of one tenant in one class.
type flow struct {
	tenant *party
	lanes  []*lane
	credit [ranks]int // what is left of its turn
}

// party is a tenant or a tool.
type party struct {
	name  string
	calls int // that are here at all
	ready int
	// limit is a tool's maxInFlight, 0 for none: the call that came last knows
	// its newest spec, and those before it must not wait by an older one.
	limit int
}

// busy reports whether a tool is at its limit.
func (p *party) busy() bool { return p.limit > 0 && p.ready >= p.limit }

// add takes a call that waits. When it counts as ready it came back: READY has
// lost it, or a scheduler died after its push to READY and before its delete
// from CALLS. It may be running, so it keeps its place, and is returned to be
// moved at once.
func (l *line) add(w queue.Waiting) (again *entry) {
	k := idOf(w.Key)
	switch old := l.calls[k]; {
	case old == nil:
	case old.seq == w.Seq:
		return nil
	case old.ready:
		old.seq = w.Seq
		return old
	default:
		l.forget(old)
	}
	e := &entry{id: k, seq: w.Seq, since: w.Since.Unix()}
	l.enter(e, w.Address)
	e.in.tool.limit = w.MaxInFlight
	l.wait(e)
	return nil
}

// start counts a call as ready.
func (l *line) start(e *entry) {
	e.ready = true
	e.in.class.ready++
	e.in.tenant.ready++
	e.in.tool.ready++
}

// admit counts a call as ready that does not wait in CALLS, if it may run now:
// if next would choose it. Otherwise it returns false, and knows nothing of it
// but its tool's limit.
func (l *line) admit(a queue.Address, maxInFlight int, now time.Time) bool {
	c := l.class(a.Class)
	if l.calls[idOf(a.Key)] != nil {
		return false
	}
	if first, _ := l.find(c, now); first != nil {
		return false
	}
	e := &entry{id: idOf(a.Key)}
	l.enter(e, a)
	e.in.tool.limit = maxInFlight
	if c.ready >= c.places || !l.fits(e) || e.in.first != nil {
		l.forget(e)
		return false
	}
	l.start(e)
	return true
}

// restore counts a call as ready that was found in READY.
func (l *line) restore(a queue.Address) {
	e := &entry{id: idOf(a.Key)}
	if l.calls[e.id] == nil {
		l.enter(e, a)
		l.start(e)
	}
}

// next takes a call that may run out of the waiting ones and counts it as
// ready. It returns nil when there is none.
func (l *line) next(c *class, now time.Time) *entry {
	e, rank := l.find(c, now)
	if e == nil {
		return nil
	}
	c.ring[c.turn[rank]].charge(c, rank)
	l.leave(e)
	l.start(e)
	return e
}

// end forgets a call. When it waited, it returns where it stands in CALLS.
func (l *line) end(k id) (seq uint64, waited bool) {
	e := l.calls[k]
	if e == nil {
		return 0, false
	}
	waited = !e.ready
	l.forget(e)
	return e.seq, waited
}

// find is the choice: the call that goes next, and the rank it was chosen in,
// whose turn it is then. It moves turns on past those who have nothing to run,
// which is no harm when what it finds is not taken.
func (l *line) find(c *class, now time.Time) (e *entry, rank int) {
	if c.ready >= c.places || c.waiting == 0 {
		return nil, 0
	}
	for rank := range ranks {
		for range c.ring {
			f := c.ring[c.turn[rank]]
			weight, maxInFlight := l.share(f.tenant.name)
			if e := l.oldest(f, rank, maxInFlight, now); e != nil {
				if f.credit[rank] == 0 {
					f.credit[rank] = max(weight, 1)
				}
				return e, rank
			}
			f.credit[rank] = 0
			c.pass(rank)
		}
	}
	return nil, 0
}

// charge takes one call off a tenant's turn, which may end it.
func (f *flow) charge(c *class, rank int) {
	f.credit[rank]--
	if f.credit[rank] == 0 {
		c.pass(rank)
	}
}

// pass gives the turn to the next tenant.
func (c *class) pass(rank int) { c.turn[rank] = (c.turn[rank] + 1) % len(c.ring) }

// oldest is the call of a tenant that goes first of those that may run.
func (l *line) oldest(f *flow, rank, maxInFlight int, now time.Time) (found *entry) {
	if maxInFlight > 0 && f.tenant.ready >= maxInFlight {
		return nil
	}
	for _, ln := range f.lanes {
		e := ln.first
		if ln.tool.busy() || rank == urgent && ln.batch && now.Unix()-e.since < int64(ageing/time.Second) {
			continue
		}
		if found == nil || e.seq < found.seq {
			found = e
		}
	}
	return found
}

// fits reports whether neither tenant nor tool of a call is busy.
func (l *line) fits(e *entry) bool {
	_, maxInFlight := l.share(e.in.tenant.name)
	return (maxInFlight <= 0 || e.in.tenant.ready < maxInFlight) && !e.in.tool.busy()
}
