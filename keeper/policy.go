package keeper

import (
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/queue"
)

// Policy is what a [Scheduler] decides by, without log, queue and clock, for who
// wants to know what it would decide: a model of a fleet is only as good as the
// policy in it, so it has this one. It is not safe for concurrent use.
type Policy struct{ line *line }

// NewPolicy makes a policy under which nothing waits yet. share is as in
// [Scheduler.Share], nil included.
func NewPolicy(share func(tenant string) (weight, maxInFlight int)) *Policy {
	if share == nil {
		share = equalShares
	}
	return &Policy{line: newLine(share)}
}

// Slots says how many slots a class has, busy and free.
func (p *Policy) Slots(class string, n int) { p.line.class(class).places = placesFor(n) }

// Wait takes a call that waits. Its Seq is not 0.
func (p *Policy) Wait(w queue.Waiting) { p.line.add(w) }

// Next chooses the call of a class that goes to READY next, and says where it
// stood in CALLS. It returns false when none may.
func (p *Policy) Next(class string, now time.Time) (seq uint64, ok bool) {
	e := p.line.next(p.line.class(class), now)
	if e == nil {
		return 0, false
	}
	return e.seq, true
}

// End says that a call has its result.
func (p *Policy) End(key call.Key) { p.line.end(idOf(key)) }

// equalShares is every tenant's share when nobody says otherwise.
func equalShares(string) (weight, maxInFlight int) { return 1, 0 }

// placesFor is how many calls of a class may be in READY, of which as many as
// there are slots are with workers: a slot each, and a few more, so that a slot
// that falls free finds a call there and need not wait for the scheduler.
func placesFor(slots int) int {
	if slots == 0 {
		return 0
	}
	return slots + max(slots/4, 1)
}
