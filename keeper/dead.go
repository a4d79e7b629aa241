package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/failpoint"
	"github.com/toolfleet/toolfleet/internal/tracing"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// finish publishes the result of a call. When the call ends by a fault of the
// fleet's own its dead letter is filed before (see [queue.DeadLetters.File] for
// why before), and taken back when somebody else has answered the call
// otherwise meanwhile.
func (r *round) finish(ctx context.Context, ref results.Ref, st results.State, result call.Result) (won bool, err error) {
	dead := st.Job.Spec != nil && call.EndOf(result.Kind()).Dead
	if dead {
		if err := r.bury(ctx, ref, st, result); err != nil {
			return false, err
		}
		failpoint.Hit(failpoint.Buried)
	}
	won, err = r.Log.Finish(ctx, ref, st.Job.Call.ToolCallID, result)
	if dead && err == nil && !won {
		err = r.exhume(ctx, ref)
	}
	return won, err
}

// buryTimeout bounds the filing of one letter. What did not get through is
// tried again in the next round; the call is not answered before.
const buryTimeout = 10 * time.Second

// bury files the dead letter.
func (r *round) bury(ctx context.Context, ref results.Ref, st results.State, result call.Result) error {
	ctx, cancel := context.WithTimeout(ctx, buryTimeout)
	defer cancel()
	attempts, err := r.Log.Attempts(ctx, ref)
	if err != nil {
		return err
	}
	filed, err := r.Queue.Dead().File(ctx, queue.NewLetter(st.Job, result, attempts, r.now))
	if filed {
		tracing.Logger(r.Logger, st.Job.Call.Traceparent).Warn("dead letter filed", "call", ref.Key, "tool", st.Job.Call.Tool, "tenant", ref.Tenant, "kind", result.Kind(), "attempts", len(attempts))
		r.Metrics.LetterFiled(st.Job.Spec.Name, string(result.Kind()))
	}
	return err
}

// exhume takes the letter back if the call's result is no fault of the fleet's.
func (r *round) exhume(ctx context.Context, ref results.Ref) error {
	st, err := r.Log.Look(ctx, ref)
	if err != nil || st.Result == nil || call.EndOf(st.Result.Kind()).Dead {
		return err
	}
	if err := r.Queue.Dead().Drop(ctx, ref.Tenant, ref.Key); err != nil && !errors.Is(err, queue.ErrNoLetter) {
		return fmt.Errorf("keeper: the dead letter of a call that was answered: %w", err)
	}
	return nil
}

// countDead shows how many letters there are.
func (r *round) countDead(ctx context.Context) error {
	n, err := r.Queue.Dead().Len(ctx)
	if err == nil {
		r.Metrics.SetDeadLetters(n)
	}
	return err
}
