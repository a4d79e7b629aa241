package dispatch

import (
	"context"
	"errors"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// Cancel asks for a call's end. A running tool is stopped by its worker, which
// watches the log; a call that was never started is answered at once. ended
// reports that the call has its result, from now or from before: then there
// was nothing left to ask for. ErrNotFound when there is no such call.
//
// Like Submit it goes on when ctx is cancelled.
func (d *Dispatcher) Cancel(ctx context.Context, ref results.Ref, reason string) (ended bool, err error) {
	ctx, cancel := d.detach(ctx)
	defer cancel()

	switch err := d.Log.Cancel(ctx, ref, reason); {
	case errors.Is(err, results.ErrEnded):
		return true, nil
	case err != nil:
		return false, classify(ctx, err)
	}
	st, err := d.Log.Look(ctx, ref)
	switch {
	case err != nil:
		return false, classify(ctx, err)
	case st.Result != nil:
		return true, nil
	case st.Start != nil:
		return false, nil
	}
	r := call.Cancelled(reason)
	r.Error.Attempt = st.Claims
	if st.Job.Refusal != nil { // nobody has given the answer yet
		r = *st.Job.Refusal
	}
	ended, err = d.endUnstarted(ctx, ref, st, r)
	return ended, classify(ctx, err)
}

// endUnstarted answers a call that was not started: it takes the start fence
// as void, so that no worker can start the tool any more, publishes r and
// takes the job away. It reports false when a worker was first; that worker
// ends the call.
func (d *Dispatcher) endUnstarted(ctx context.Context, ref results.Ref, st results.State, r call.Result) (bool, error) {
	switch ok, err := d.Log.Void(ctx, ref, results.Worker{}, st.Claims); {
	case errors.Is(err, results.ErrEnded):
		return true, nil
	case err != nil || !ok:
		return false, err
	}
	won, err := d.Log.Finish(ctx, ref, st.Job.Call.ToolCallID, r)
	if err != nil {
		return false, err
	}
	if won {
		d.ended(st.Job, r)
	}
	if st.Job.Spec != nil {
		if err := d.Queue.Remove(ctx, queue.AddressOf(st.Job)); err != nil {
			// Harmless: whoever gets the job finds the result and drops it.
			d.Logger.Warn("the job of an ended call is still queued", "call", ref.Key, "error", err)
		}
	}
	return true, nil
}
