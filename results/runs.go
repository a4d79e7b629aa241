package results

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolfleet/toolfleet/call"
)

// RunRef names a run: what a client streams, with any number of calls in it. A
// run has no log. Its calls have, and outlive it; the run itself is there as
// long as some process streams it.
type RunRef struct{ Tenant, ThreadID, RunID string }

// subject is where the end of a run is asked for. The ids are a client's and
// may hold anything, so it is made of their hash.
func (r RunRef) subject() (string, error) {
	if !call.ValidTenant(r.Tenant) {
		return "", fmt.Errorf("results: %q is not a tenant", r.Tenant)
	}
	return "toolfleet.runs." + r.Tenant + "." + string(call.MakeKey(r.Tenant, r.ThreadID, "run", r.RunID)), nil
}

// WatchRun calls cancel with a reason, from another goroutine, whenever
// somebody asks for the end of a run that this process streams. It returns when
// the server knows about the watch. stop ends it.
//
// It is a plain subscription and no entry of a log: a question that nobody is
// there to hear is not one to keep.
func (l *Log) WatchRun(ctx context.Context, run RunRef, cancel func(reason string)) (stop func(), err error) {
	subject, err := run.subject()
	if err != nil {
		return nil, err
	}
	sub, err := l.js.Conn().Subscribe(subject, func(m *nats.Msg) {
		cancel(string(m.Data))
		_ = m.Respond(nil) // whoever asked and is gone need not know
	})
	if err != nil {
		return nil, fmt.Errorf("results: watch run: %w", err)
	}
	stop = func() { _ = sub.Unsubscribe() } // it fails when the connection is closed, and then is done
	ctx, done := context.WithTimeout(ctx, requestTimeout)
	defer done()
	if err := l.js.Conn().FlushWithContext(ctx); err != nil {
		stop()
		return nil, fmt.Errorf("results: watch run: %w", err)
	}
	return stop, nil
}

// runTimeout bounds the answer of a process that streams the run. It says
// nothing but that it heard, so only one that hangs is slower.
const runTimeout = 5 * time.Second

// CancelRun asks whoever streams the run for its end, in whatever process that
// is. It reports false when nobody does.
func (l *Log) CancelRun(ctx context.Context, run RunRef, reason string) (bool, error) {
	subject, err := run.subject()
	if err != nil {
		return false, err
	}
	ctx, done := context.WithTimeout(ctx, runTimeout)
	defer done()
	switch _, err := l.js.Conn().RequestWithContext(ctx, subject, []byte(reason)); {
	case errors.Is(err, nats.ErrNoResponders):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("results: cancel run: %w", err)
	}
	return true, nil
}
