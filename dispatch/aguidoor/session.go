package aguidoor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/results"
)

// session is one run that a client has asked for. It belongs to the goroutine
// of its request.
type session struct {
	door  *Door
	ctx   context.Context // the request's
	input agui.RunAgentInput
	out   *stream
	calls *calls
	// cancels holds a reason when the run's end was asked for, and cancelled is
	// set once the calls have been told.
	cancels   <-chan string
	cancelled bool
	unwatch   func()
	keepAlive *time.Ticker
	// shown sees every event that the client sees, after it; nil for none.
	shown func(agui.Event) error
}

// open prepares a session. From here on its end can be asked for.
func (d *Door) open(r *http.Request, in agui.RunAgentInput) (*session, error) {
	ctx := r.Context()
	ref := results.RunRef{Tenant: dispatch.CallerOf(ctx).Tenant, ThreadID: in.ThreadID, RunID: in.RunID}
	cancels, unwatch, err := d.config.Dispatcher.WatchRun(ctx, ref)
	if err != nil {
		return nil, err
	}
	d.config.Metrics.HTTPStreams(label, 1)
	return &session{
		door: d, ctx: ctx, input: in, cancels: cancels, unwatch: unwatch,
		calls:     newCalls(ctx, d.config, ref, in.Messages, traceparent(r)),
		keepAlive: time.NewTicker(d.config.KeepAlive),
	}, nil
}

// close ends the session, and none of its calls.
func (s *session) close() {
	s.unwatch()
	s.keepAlive.Stop()
	s.calls.close()
	s.door.config.Metrics.HTTPStreams(label, -1)
}

// begin answers the request with a stream and opens the run.
func (s *session) begin(w http.ResponseWriter) error {
	s.out = openStream(w, s.input, s.door.config.Logger)
	return s.send(agui.RunStarted{
		ThreadID: s.input.ThreadID, RunID: s.input.RunID,
		ProtocolVersion: agui.ProtocolVersion, ParentRunID: s.input.ParentRunID,
	})
}

// send shows the client an event.
func (s *session) send(ev agui.Event) error {
	if err := s.out.send(ev); err != nil {
		return err
	}
	if s.shown == nil {
		return nil
	}
	return s.shown(ev)
}

// answer waits until every call that was begun has its answer, and shows what
// happens to them.
func (s *session) answer() error {
	for s.calls.open > 0 {
		if err := s.next(nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// next handles the next thing that happens to the run: to one of its calls,
// to the run itself, or, given a channel, to the agent behind it.
func (s *session) next(upstream <-chan upstreamEvent, take func(upstreamEvent) error) error {
	select {
	case e := <-s.calls.events:
		if e.err != nil {
			return e.err
		}
		return s.send(s.calls.take(e))
	case e := <-upstream:
		return take(e)
	case reason := <-s.cancels:
		s.cancelled = true
		if err := s.calls.cancel(reason); err != nil && s.ctx.Err() == nil {
			// Whoever asked was told so by the dispatcher they asked, and asks
			// again.
			s.door.config.Logger.Warn("a call could not be cancelled", "error", err)
		}
		return nil
	case <-s.keepAlive.C:
		return s.out.comment()
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// runError is why a run cannot go on, as its client is told.
type runError struct {
	code    string
	message string
	// usage is what an agent says of its run.
	usage []agui.TokenUsage
	// cause is for the log.
	cause error
}

// Error implements error.
func (e *runError) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("aguidoor: %s: %v", e.message, e.cause)
	}
	return "aguidoor: " + e.message
}

// Unwrap implements the errors package's interface.
func (e *runError) Unwrap() error { return e.cause }

// The codes of RUN_ERROR.
const (
	codeShutdown    = "shutting_down"
	codeUnavailable = "unavailable"
	codeFlood       = "too_many_refusals"
	codeInternal    = "internal"
)

// end ends the run: with the event that finishes it, or as err says. A run that
// cannot go on says so: to some clients a stream that just ends reads like one
// that did what it was for. Its calls go on in any case.
func (s *session) end(last agui.Event, err error) {
	if err == nil {
		err = s.send(last)
	}
	var why *runError
	switch {
	case err == nil, errors.Is(err, errGone):
		return
	case s.ctx.Err() != nil && errors.Is(context.Cause(s.ctx), context.Canceled):
		return // the client went away
	case s.ctx.Err() != nil:
		why = &runError{code: codeShutdown, message: "The server is shutting down. The calls of the run go on: send the same messages again under a new runId."}
	case errors.As(err, &why):
		s.door.config.Logger.Info("a run ended with an error", "code", why.code, "error", err)
	case errors.Is(err, dispatch.ErrFlood):
		why = &runError{code: codeFlood, message: "So many calls were refused of late that one more is not even answered. Heed what the refusals say, and send the same messages again later, under a new runId."}
	case errors.Is(err, dispatch.ErrUnavailable):
		s.door.config.Logger.Warn("a run was cut", "error", err)
		why = &runError{code: codeUnavailable, message: "The fleet cannot go on with the run now. Calls that were taken go on: send the same messages again under a new runId."}
	default:
		s.door.config.Logger.Error("a run failed", "error", err)
		why = &runError{code: codeInternal, message: "The fleet failed to go on with the run. Calls that were taken go on: send the same messages again under a new runId."}
	}
	// The client may be gone all the same, and there is nobody to tell.
	_ = s.out.send(agui.RunError{Message: why.message, Code: why.code, Usage: why.usage})
}

// finished is the end of a run that did what it was for, or that was stopped.
func (s *session) finished() agui.RunFinished {
	f := agui.RunFinished{ThreadID: s.input.ThreadID, RunID: s.input.RunID}
	if s.cancelled {
		f.Outcome = &agui.Outcome{Type: agui.OutcomeCancelled}
	} else {
		f.Outcome = &agui.Outcome{Type: agui.OutcomeSuccess, PendingToolCallIDs: s.out.verifier.Pending()}
	}
	return f
}
