package keeper

import (
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/results"
)

// Patience before the keeper takes a step that belongs to somebody else.
const (
	// settleTime is how long the one who began something has to go on: a
	// dispatcher from the admission to the push, an ender from the void start
	// to the result.
	settleTime = 5 * time.Second
	// claimTime is how long a living worker may take from its claim to the
	// start. A cold start pulls an image.
	claimTime = 5 * time.Minute
)

// facts are all that the keeper judges by.
type facts struct {
	now time.Time
	// settle is settleTime, but in tests.
	settle time.Duration
	// admitted and expires are the call's.
	admitted, expires time.Time
	idempotent        bool
	// refusal is the answer of a call that is not to run.
	refusal *call.Result
	refused bool
	cancel  *string
	start   *results.Marker
	claims  int
	claimed time.Time
	// alive tells whether a worker that may have the call in its hands is.
	alive bool
	// queued tells whether the job is in the queue.
	queued bool
	// workers tells whether any worker of the call's class is alive.
	workers bool
}

// deed is what the keeper does about a call.
type deed int

const (
	leave deed = iota
	// push sends the job to the queue again.
	push
	// end publishes a result.
	end
	// endUnrun publishes a result once the start fence is taken.
	endUnrun
)

func (d deed) String() string { return [...]string{"leave", "push", "end", "end unrun"}[d] }

// judge decides. It is the whole policy, and knows neither log nor queue.
func judge(f facts) (deed, call.Result) {
	switch {
	case f.now.Sub(f.admitted) < f.settle:
		return leave, call.Result{}
	case f.refused:
		if f.refusal == nil {
			return end, call.Result{} // known from the index only; the log has the text
		}
		return end, *f.refusal
	case f.start == nil:
		return judgeUnstarted(f)
	case f.start.Void:
		return judgeVoid(f)
	}
	return judgeStarted(f)
}

// judgeUnstarted decides about a call whose tool was never started.
func judgeUnstarted(f facts) (deed, call.Result) {
	switch {
	case f.cancel != nil:
		return endUnrun, call.Cancelled(*f.cancel)
	case f.claims > 0 && f.alive && f.now.Sub(f.claimed) < claimTime:
		return leave, call.Result{} // a worker is at it
	case f.claims >= call.MaxAttempts:
		return endUnrun, call.Spent(f.claims)
	case f.expired():
		return endUnrun, call.Expired(f.now.Sub(f.admitted), f.workers)
	case !f.queued:
		return push, call.Result{}
	}
	return leave, call.Result{}
}

// judgeVoid decides about a call that somebody began to end without a run.
func judgeVoid(f facts) (deed, call.Result) {
	switch {
	case f.now.Sub(f.start.Time) < f.settle:
		return leave, call.Result{}
	case f.cancel != nil:
		return end, call.Cancelled(*f.cancel)
	case f.claims >= call.MaxAttempts:
		return end, call.Spent(f.claims)
	}
	return end, call.Expired(f.now.Sub(f.admitted), f.workers)
}

// judgeStarted decides about a call whose tool was started.
func judgeStarted(f facts) (deed, call.Result) {
	switch {
	case f.alive && !f.queued:
		return push, call.Result{} // the worker has no delivery: it gave it back, and then it was lost
	case f.alive:
		return leave, call.Result{}
	case !f.idempotent:
		return end, call.Interrupted("the worker that ran it was lost")
	case f.cancel != nil:
		return end, call.Cancelled(*f.cancel)
	case f.claims >= call.MaxAttempts:
		return end, call.Spent(f.claims)
	case !f.queued:
		return push, call.Result{}
	}
	return leave, call.Result{}
}

func (f facts) expired() bool { return !f.expires.IsZero() && f.now.After(f.expires) }

// owners are the workers that may have the call in their hands, as far as the
// log says: of a call that may run again also the last one to take it, which may
// be making its sandbox.
func (f facts) owners(claimedBy results.Worker) (owners []results.Worker) {
	started := f.start != nil && !f.start.Void
	if started {
		owners = append(owners, f.start.Worker)
	}
	if f.claims > 0 && (f.start == nil || started && f.idempotent) {
		owners = append(owners, claimedBy)
	}
	return owners
}
