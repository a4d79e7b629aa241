package worker

import (
	"context"
	"errors"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/failpoint"
	"github.com/toolfleet/toolfleet/queue"
)

// giveUp answers a call that is not tried again. The start fence is taken first
// when no worker has it: one whose delivery was given to us too early may be
// about to start the tool, and must not do so behind the answer.
func (a *attempt) giveUp(ctx context.Context, r call.Result) error {
	// As in finish, a worker that is told to stop says so all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	state, err := a.look(ctx)
	switch {
	case err != nil:
		return giveBack(busyPause, err)
	case state.Result != nil:
		return nil
	}
	return a.endUnrun(ctx, state, r)
}

// publish appends the result. When the call ends by a fault of ours its dead
// letter is filed before (see [queue.DeadLetters.File] for why before), and
// taken back when another has answered the call otherwise meanwhile.
func (a *attempt) publish(ctx context.Context, r call.Result) (won bool, err error) {
	dead := a.Dead != nil && call.EndOf(r.Kind()).Dead
	if dead {
		if err := a.bury(ctx, r); err != nil {
			return false, err
		}
		failpoint.Hit(failpoint.Buried)
	}
	won, err = a.Log.Finish(ctx, a.ref, a.job.Call.ToolCallID, r)
	if dead && err == nil && !won {
		a.exhume(ctx)
	}
	return won, err
}

// bury files the dead letter.
func (a *attempt) bury(ctx context.Context, r call.Result) error {
	attempts, err := a.Log.Attempts(ctx, a.ref)
	if err != nil {
		return err
	}
	filed, err := a.Dead.File(ctx, queue.NewLetter(*a.job, r, attempts, time.Now()))
	if filed {
		a.logger.Warn("dead letter filed", "kind", r.Kind(), "attempts", len(attempts))
		a.Metrics.LetterFiled(a.job.Call.Tool, string(r.Kind()))
	}
	return err
}

// exhume takes the letter back if the call's result is no fault of ours. What
// fails here leaves a letter of which a redrive finds out that it is not true.
func (a *attempt) exhume(ctx context.Context) {
	state, err := a.look(ctx)
	if err == nil && state.Result != nil && !call.EndOf(state.Result.Kind()).Dead {
		err = a.Dead.Drop(ctx, a.ref.Tenant, a.ref.Key)
	}
	if err != nil && !errors.Is(err, queue.ErrNoLetter) {
		a.logger.Warn("the dead letter of a call that was answered could not be taken back", "error", err)
	}
}
