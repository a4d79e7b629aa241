package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/results"
)

// Hooks stand around every call that a worker handles, for those who embed one:
// a policy of their own before, a redaction or a reminder of their own after.
// Either may be nil. They run beside each other for as many calls as there are
// slots, and again when a delivery comes again.
//
// A hook has ten seconds, and then its context is done. One that goes on after
// that, or panics, costs its call nothing but what it would have said: Before has
// then denied the call, since whoever asks to be asked does not want it to run
// unasked, and After has changed nothing.
type Hooks struct {
	// Before may deny a call, before anything is started for it. Its error's text
	// is the reason that the model is told; the call ends as declined.
	Before func(ctx context.Context, c call.Call, spec *catalog.Spec) error
	// After may replace a result or append to its Extra. It sees every result
	// that the worker publishes, failed ones too. How the call was run and its id
	// stay what they were. A part that AG-UI does not know makes the whole of the
	// answer count as none.
	After func(ctx context.Context, c call.Call, spec *catalog.Spec, r call.Result) call.Result
}

// hookTimeout bounds a hook.
var hookTimeout = 10 * time.Second // shorter in a test

var errHook = errors.New("worker: the hook did not answer")

// permitted asks the hook before a call. It reports that the call has ended here,
// or returns an error that gives the delivery back.
func (a *attempt) permitted(ctx context.Context, state results.State) (ended bool, err error) {
	before, job := a.Hooks.Before, a.job
	if before == nil {
		return false, nil
	}
	verdict, err := hooked(ctx, func(ctx context.Context) error {
		return before(ctx, job.Call, job.Spec)
	})
	switch cause := context.Cause(ctx); {
	case cause != nil && (err != nil || verdict != nil):
		return false, giveBack(0, cause)
	case err != nil:
		a.logger.Error("the hook before a call failed, and the call is denied", "error", err)
		verdict = errors.New("it could not be checked")
	case verdict == nil:
		return false, nil
	}
	return true, a.endUnrun(ctx, state, call.Failure(call.KindDeclined, "The call was denied: "+verdict.Error()))
}

// amended shows a result to the hook after a call.
func (a *attempt) amended(ctx context.Context, r call.Result) call.Result {
	after, job := a.Hooks.After, a.job
	if after == nil {
		return r
	}
	// A hook that is given up may go on writing into what it was given.
	shown := r
	shown.Content, shown.Extra = slices.Clone(r.Content), slices.Clone(r.Extra)
	if r.Error != nil {
		e := *r.Error
		shown.Error = &e
	}
	answer, err := hooked(ctx, func(ctx context.Context) call.Result {
		return after(ctx, job.Call, job.Spec, shown)
	})
	for _, p := range answer.Contents() {
		err = errors.Join(err, p.Validate())
	}
	if err != nil {
		a.logger.Error("the hook after a call failed, and the result stays as it was", "error", err)
		return r
	}
	return settled(answer, r)
}

// settled keeps of a result what is not a hook's to say: whose the call was, how
// it was run, and that the fleet has failed. An error result has its kind, and no
// other result has one.
func settled(r, before call.Result) call.Result {
	r.CallID, r.Execution, r.Dropped = before.CallID, before.Execution, before.Dropped
	switch {
	case call.EndOf(before.Kind()).Dead:
		r.IsError, r.Error = true, before.Error
	case !r.IsError:
		r.Error = nil
	case r.Error == nil:
		r.Error = &call.Error{Kind: call.KindToolError, Message: "The result was made an error behind the tool."}
	}
	return r
}

// hooked runs a hook within bounds. A hook that does not end in time is left
// behind with its context done; nobody could end it.
func hooked[T any](ctx context.Context, hook func(context.Context) T) (T, error) {
	type end struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	ended := make(chan end, 1)
	go func() {
		e := end{err: fmt.Errorf("%w: it ended its goroutine", errHook)}
		defer func() {
			if v := recover(); v != nil {
				e.err = fmt.Errorf("%w: panic: %v\n%s", errHook, v, debug.Stack())
			}
			ended <- e
		}()
		e = end{value: hook(ctx)}
	}()
	select {
	case e := <-ended:
		return e.value, e.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: %w", errHook, ctx.Err())
	}
}
