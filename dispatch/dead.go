package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

var (
	// ErrNoLetter says that there is no such dead letter.
	ErrNoLetter = queue.ErrNoLetter
	// ErrNotRedriven says that a dead letter was left where it is. Its text
	// says why, behind the sentinel's own, and is safe to show to the caller.
	ErrNotRedriven = errors.New("dispatch: not redriven")
)

// DeadLetters lists a tenant's dead letters, oldest first, without their
// argument texts.
func (d *Dispatcher) DeadLetters(ctx context.Context, tenant string, f queue.LetterFilter) ([]queue.Letter, error) {
	letters, err := d.Queue.Dead().List(ctx, tenant, f)
	return letters, d.classifyDead(ctx, err)
}

// DeadLetter reads one dead letter. ErrNoLetter when there is none.
func (d *Dispatcher) DeadLetter(ctx context.Context, ref results.Ref) (queue.Letter, error) {
	l, err := d.Queue.Dead().Get(ctx, ref.Tenant, ref.Key)
	return l, d.classifyDead(ctx, err)
}

// DropDeadLetter removes a dead letter. The call that it is about keeps its log
// and its answer. ErrNoLetter when there is none.
func (d *Dispatcher) DropDeadLetter(ctx context.Context, ref results.Ref) error {
	return d.classifyDead(ctx, d.Queue.Dead().Drop(ctx, ref.Tenant, ref.Key))
}

// Redrive makes the call of a dead letter again, as a new call of the same
// thread whose [call.Call.RedriveOf] names the old one, and removes the letter.
// The old call keeps its answer: it was given.
//
// The new call is held against the catalogue and the quotas of now, like every
// call; one that would be refused is not made. Without force it is not made either when the
// old one may have done its work and its tool is not declared idempotent.
//
// The ids of the new call come from the old key. When a dispatcher dies between
// the submit and the removal, or an answer is lost on its way to the client, a
// second redrive therefore finds the same call and starts nothing twice.
//
// Errors: ErrNoLetter, ErrNotRedriven, and those of Submit.
func (d *Dispatcher) Redrive(ctx context.Context, ref results.Ref, traceparent string, force bool) (Ticket, error) {
	l, err := d.DeadLetter(ctx, ref)
	if err != nil {
		return Ticket{}, err
	}
	if err := d.mayRedrive(ctx, ref, l, force); err != nil {
		return Ticket{}, err
	}
	args, err := d.arguments(ctx, ref, l.Job.Call)
	if err != nil {
		return Ticket{}, classify(ctx, err)
	}
	if call.Digest(args) != l.Job.Call.ArgumentsDigest {
		return Ticket{}, notRedriven("The arguments of the call are not kept any more.")
	}
	next := redriveOf(l.Job.Call, args)
	next.Traceparent = traceparent
	leave, err := d.letIn(ctx, next)
	if err != nil {
		return Ticket{}, err
	}
	defer leave()
	t, err := d.Submit(ctx, next)
	if err != nil {
		return Ticket{}, err
	}
	ctx, cancel := d.detach(ctx)
	defer cancel()
	if err := d.DropDeadLetter(ctx, ref); err != nil && !errors.Is(err, ErrNoLetter) {
		d.Logger.Warn("the dead letter of a redriven call is still there", "call", ref.Key, "redriven", t.Key, "error", err)
	}
	return t, nil
}

// mayRedrive says why a letter is not to be redriven.
func (d *Dispatcher) mayRedrive(ctx context.Context, ref results.Ref, l queue.Letter, force bool) error {
	// The letter is older than the answer, if only by a moment.
	st, err := d.Log.Look(ctx, ref)
	switch {
	case errors.Is(err, ErrNotFound): // the log is older than its horizon
	case err != nil:
		return classify(ctx, err)
	case st.Result == nil:
		return notRedriven("The call is being ended just now. Try again in a moment.")
	case !call.EndOf(st.Result.Kind()).Dead && !force:
		return notRedriven("The call was answered after all (%s): drop the letter. To make the call again all the same, redrive it with force.", st.Result.Status())
	}
	if l.Started() && !l.Job.Spec.Annotations.Idempotent && !force {
		return notRedriven("The call was started, so its tool may have done its work, and the tool is not declared idempotent. Check its effect; to make the call again, redrive it with force.")
	}
	return nil
}

// letIn fails when the new call would be refused: behind Submit the refusal would
// be its answer, and the letter spent. The room that a quota has for the call is
// held until leave; Submit, being of the same call, has it too.
func (d *Dispatcher) letIn(ctx context.Context, c call.Call) (leave func(), err error) {
	job, args, err := d.check(c)
	if err != nil {
		return nil, err
	}
	leave = func() {}
	if job.Refusal == nil {
		if leave, err = d.quota(ctx, &job, args, 0); err != nil {
			return nil, err
		}
	}
	if job.Refusal != nil {
		text, _ := agui.ContentOf(job.Refusal.Contents()).Flatten()
		return nil, notRedriven("The call would be refused now: %s", text)
	}
	return leave, nil
}

func notRedriven(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNotRedriven, fmt.Sprintf(format, args...))
}

// redriveOf is the new call. It has no parent message: the one that carries the
// old call knows nothing of this one.
func redriveOf(old call.Call, args string) call.Call {
	id := "redrive-" + string(old.Key())
	return call.Call{
		Tenant: old.Tenant, ThreadID: old.ThreadID, RunID: id, Scope: id, ToolCallID: id, Tool: old.Tool,
		Arguments: args, Files: old.Files, Timeout: old.Timeout, Priority: old.Priority, RedriveOf: old.Key(),
	}
}

// classifyDead sorts an error of the dead letters.
func (d *Dispatcher) classifyDead(ctx context.Context, err error) error {
	if errors.Is(err, ErrNoLetter) {
		return err
	}
	return classify(ctx, err)
}
