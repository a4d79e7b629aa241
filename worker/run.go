package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/failpoint"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/sandbox"
)

// run takes a sandbox, takes the start fence, runs the tool and publishes how
// it ended.
func (a *attempt) run(ctx context.Context) error {
	args, err := a.arguments(ctx)
	if err != nil {
		return a.withoutArguments(ctx, fmt.Errorf("read arguments: %w", err))
	}
	if a.files, err = a.filesIn(ctx); err != nil {
		return a.withoutArguments(ctx, fmt.Errorf("look at files: %w", err))
	}

	if err := a.takeSecrets(); err != nil {
		return a.withoutSecrets(ctx, err)
	}

	sb, err := a.sandbox(ctx)
	switch {
	case errors.Is(err, errCancelled):
		return a.handleCancelBeforeStart(ctx)
	case errors.As(err, new(*errGiveBack)): // the claim failed
		return err
	case err != nil && context.Cause(ctx) != nil:
		return giveBack(0, context.Cause(ctx))
	case errors.Is(err, sandbox.ErrImage):
		return a.failed(ctx, false, call.KindImageUnavailable, err)
	case err != nil:
		return a.failed(ctx, false, call.KindSandboxFailed, err)
	}
	if err := a.start(ctx); err != nil {
		a.Sandboxes.Release(sb)
		return err
	}
	failpoint.Hit(failpoint.Started)
	return a.execute(ctx, sb, args)
}

// arguments returns the argument text, which may have travelled as a blob.
func (a *attempt) arguments(ctx context.Context) ([]byte, error) {
	c := a.job.Call
	if c.ArgumentsBlob == "" {
		return []byte(c.Arguments), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return a.fetch(ctx, c.ArgumentsBlob, call.MaxArguments, c.ArgumentsDigest)
}

// withoutArguments ends an attempt whose arguments or files could not be read. It is
// counted here, since it has not come as far as a sandbox: arguments that are
// lost would be asked for until the call expires, and it would be answered as
// one that nobody had the time for.
func (a *attempt) withoutArguments(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return giveBack(0, cause)
	}
	if err := a.claim(ctx); err != nil {
		return err
	}
	return a.failed(ctx, false, call.KindInternal, err)
}

// sandbox takes a sandbox within bounds. A cancel ends the wait.
func (a *attempt) sandbox(ctx context.Context) (*sandbox.Sandbox, error) {
	delivery := ctx
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctx, watch := a.watchCancel(ctx)
	defer watch()

	began := time.Now()
	sb, warm, err := a.Sandboxes.Take(ctx, a.job.Spec.Sandbox(a.job.Call.Tenant), a.claim)
	if err != nil {
		if errors.Is(context.Cause(ctx), errCancelled) {
			err = errCancelled
		}
		a.span.StepFailed("sandbox", unready(delivery, err), began, time.Now())
		return nil, err
	}
	a.Metrics.SandboxStarted(sb.Runtime(), warm, time.Since(began))
	a.step("sandbox", began, slog.String("toolfleet.runtime", sb.Runtime()), slog.Bool("toolfleet.warm", warm))
	return sb, nil
}

// unready is the kind of error for a sandbox that there was not.
func unready(delivery context.Context, err error) string {
	switch {
	case errors.As(err, new(*errGiveBack)), delivery.Err() != nil:
		return "given_back"
	case errors.Is(err, errCancelled):
		return string(call.KindCancelled)
	case errors.Is(err, sandbox.ErrImage):
		return string(call.KindImageUnavailable)
	}
	return string(call.KindSandboxFailed)
}

// watchCancel returns a context that ends with errCancelled as its cause when
// the call is cancelled.
func (a *attempt) watchCancel(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-a.cancelled:
			cancel(errCancelled)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

func (a *attempt) handleCancelBeforeStart(ctx context.Context) error {
	state, err := a.look(ctx)
	if err != nil {
		return giveBack(busyPause, err)
	}
	if state.Result != nil {
		return nil
	}
	reason := ""
	if state.Cancel != nil {
		reason = *state.Cancel
	}
	return a.endUnrun(ctx, state, call.Cancelled(reason))
}

// start takes the start fence. Only its winner goes on; behind an earlier
// start an idempotent tool goes on too, when the attempts before have been
// counted.
func (a *attempt) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	began := time.Now()
	defer func() { a.step("start", began) }()
	m := results.Marker{Worker: a.Self, Attempt: a.n}
	won, other, err := a.Log.Start(ctx, a.ref, m)
	if err == nil && !won && a.assumed {
		return giveBack(0, errTouched)
	}
	a.assumed = false
	if err == nil && !won && !other.Void && a.idempotent() {
		won, err = true, a.Log.StartAgain(ctx, a.ref, m)
	}
	switch {
	case errors.Is(err, results.ErrEnded):
		a.lost(results.KindStart)
		return giveBack(0, err)
	case err != nil:
		return giveBack(busyPause, err)
	case !won:
		return giveBack(busyPause, errBusy)
	}
	return nil
}

// runIn runs p in sb. When the sandbox is lost before the tool has started,
// which the driver knows for sure, the next one takes its place: the start
// that is in the log has had no effect yet, so this is as safe for a tool that
// may not be repeated. It returns the sandbox that was used last; the others
// are released.
func (a *attempt) runIn(ctx context.Context, sb *sandbox.Sandbox, p sandbox.Process, sink sandbox.Sink) (*sandbox.Sandbox, sandbox.Exit, error) {
	for try := 1; ; try++ {
		exit, err := sb.Run(ctx, p, sink)
		if err == nil || !exit.Started.IsZero() || try == call.MaxAttempts || ctx.Err() != nil {
			return sb, exit, err
		}
		a.logger.Warn("sandbox lost before the tool started; taking another", "sandbox", sb.ID(), "error", err)
		next, nextErr := a.sandbox(ctx)
		if nextErr != nil {
			return sb, exit, errors.Join(err, nextErr)
		}
		a.Sandboxes.Release(sb)
		sb = next
	}
}

// failed deals with a failure of ours: the delivery comes again after a
// growing pause while that is safe and attempts are left, and becomes an error
// result otherwise.
func (a *attempt) failed(ctx context.Context, started bool, kind call.Kind, cause error) error {
	if started && !a.idempotent() {
		a.logger.Error("sandbox failed after the start", "error", cause, "attempt", a.n)
		return a.finish(ctx, call.Interrupted("its sandbox failed while it ran"))
	}
	if a.n < call.MaxAttempts {
		return giveBack(time.Duration(a.n*a.n)*time.Second, cause)
	}
	a.logger.Error("attempts spent", "error", cause, "attempt", a.n)
	r := call.Failure(kind, fmt.Sprintf("The tool could not be run after %d attempts: %s.", a.n, plain(kind, a.job.Spec.Image, cause)))
	return a.giveUp(ctx, r)
}

// plain says a failure of ours in words for a model. The chain of causes, with
// paths and addresses in it, goes to the log only.
func plain(kind call.Kind, image string, cause error) string {
	switch kind {
	case call.KindImageUnavailable:
		var fault sandbox.ImageFault
		if known, ok := errors.AsType[*sandbox.ImageError](cause); ok {
			fault = known.Fault
		}
		return fmt.Sprintf("its image %q %s", image, fault.Predicate())
	case call.KindSandboxFailed:
		return "its sandbox could not be made or was lost; the operator's log says why"
	}
	return "the fleet failed; the operator's log says why"
}
