package dispatch

import (
	"context"
	"errors"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/results"
)

// WatchRun tells a door that streams a run when its end is asked for: the
// channel then holds the reason. A door that hears it cancels the calls of its
// run and ends the run when they have. stop must be called.
func (d *Dispatcher) WatchRun(ctx context.Context, run results.RunRef) (cancelled <-chan string, stop func(), err error) {
	ctx, done := d.detach(ctx)
	defer done()
	reasons := make(chan string, 1)
	stop, err = d.Log.WatchRun(ctx, run, func(reason string) {
		select {
		case reasons <- reason:
		default: // another one is not heard yet
		}
	})
	return reasons, stop, classify(ctx, err)
}

// CancelRun asks for the end of a run: of the stream, wherever it is served,
// and of the calls that were first made in it, which go on when their stream
// is gone. Calls that the run only met again, made in an earlier run whose
// connection broke, are known to its stream alone: without one they are
// cancelled under the id of that run, or each by [Dispatcher.Cancel].
//
// ended reports that nothing was left to ask for. ErrNotFound when nobody
// knows the run.
func (d *Dispatcher) CancelRun(ctx context.Context, run results.RunRef, reason string) (ended bool, err error) {
	if run.ThreadID == "" || run.RunID == "" {
		return false, ErrNotFound
	}
	streamed, err := d.Log.CancelRun(ctx, run, reason)
	if err != nil {
		return false, classify(ctx, err)
	}
	ended = !streamed
	calls := 0
	for before := uint64(0); ; {
		page, err := d.List(ctx, run.Tenant, results.ListOptions{ThreadID: run.ThreadID, RunID: run.RunID, Before: before, Limit: 1000})
		if err != nil {
			return false, err
		}
		for _, c := range page {
			calls++
			if c.Status.Ended() {
				continue
			}
			done, err := d.Cancel(ctx, c.Ref, reason)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return false, err
			}
			ended = ended && done
		}
		if len(page) < 1000 {
			break
		}
		before = page[len(page)-1].Cursor
	}
	if !streamed && calls == 0 {
		return false, ErrNotFound
	}
	return ended, nil
}

// Refused makes the answer to a call that never reached a log, for doors whose
// protocol wants every call answered: its ids cannot name one, or name another
// call already. The result is the door's alone; asking again makes it again.
func Refused(err error) (call.Result, bool) {
	switch {
	case errors.Is(err, ErrConflict):
		return call.Failure(call.KindInvalidArguments, "The call was not run: the same ids were used before for a call with another tool or other arguments. Make a new call."), true
	case errors.Is(err, ErrMalformed):
		return call.Failure(call.KindInvalidArguments, "The call was not run: "+err.Error()[len(ErrMalformed.Error())+2:]+"."), true
	}
	return call.Result{}, false
}
