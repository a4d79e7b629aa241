package aguidoor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/internal/problem"
)

// run is POST /agui/run. The run has the calls that the messages of its input
// leave unanswered, but for the client's own. No START, ARGS or END is sent for
// them: they describe how a call was generated, which was in an earlier run.
func (d *Door) run(w http.ResponseWriter, r *http.Request) {
	in, ok := d.decode(w, r)
	if !ok {
		return
	}
	mine, ok := d.bounded(w, agui.PendingCalls(in.Messages), func(c agui.ToolCall) bool { return !in.Advertises(c.Name) })
	if !ok {
		return
	}
	s, err := d.open(r, in)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	defer s.close()
	if err := s.calls.beginAll(mine); err != nil {
		d.fail(w, r, err)
		return
	}
	if err = s.begin(w); err == nil {
		err = s.answer()
	}
	s.end(s.finished(), err)
}

// bounded returns the calls that are ours, or answers the request when they are
// too many.
func (d *Door) bounded(w http.ResponseWriter, list []agui.ToolCall, ours func(agui.ToolCall) bool) ([]agui.ToolCall, bool) {
	mine := slices.DeleteFunc(list, func(c agui.ToolCall) bool { return !ours(c) })
	if len(mine) > d.config.MaxCalls {
		problem.Write(w, http.StatusBadRequest, fmt.Sprintf("The messages leave %d calls unanswered; one run takes %d.", len(mine), d.config.MaxCalls))
		return nil, false
	}
	return mine, true
}

// decode reads the input, or answers the request.
func (d *Door) decode(w http.ResponseWriter, r *http.Request) (agui.RunAgentInput, bool) {
	body, err := io.ReadAll(r.Body) // bounded, and read already, by whoever serves the door
	if err != nil {
		problem.Write(w, http.StatusBadRequest, "The body could not be read.")
		return agui.RunAgentInput{}, false
	}
	in, warnings, err := agui.DecodeInput(body)
	if err != nil {
		problem.Write(w, http.StatusBadRequest, "The body is no RunAgentInput: "+err.Error())
		return agui.RunAgentInput{}, false
	}
	for _, warning := range warnings {
		d.config.Logger.Info("left out of a run's input", "what", warning.String())
	}
	return in, true
}

// fail answers a request that did not become a stream.
func (d *Door) fail(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return // the client is gone
	case errors.Is(err, dispatch.ErrFlood):
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(dispatch.RetryAfter(err).Seconds()))))
		problem.Write(w, http.StatusTooManyRequests, "So many calls were refused of late that one more is not even answered. Heed what the refusals say, and try again later.")
	case ctx.Err() != nil, errors.Is(err, dispatch.ErrUnavailable):
		d.config.Logger.Warn("a run was refused", "error", err)
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(dispatch.RetryAfter(err).Seconds()))))
		problem.Write(w, http.StatusServiceUnavailable, "The fleet cannot take the run now. Try again a little later.")
	default:
		d.config.Logger.Error("a run was refused", "error", err)
		problem.Write(w, http.StatusInternalServerError, "The fleet failed to take the run. The failure is in its log.")
	}
}

// traceparentForm is a W3C trace context of version 0.
var traceparentForm = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceparent is the trace context of a request, if it has one.
func traceparent(r *http.Request) string {
	t := r.Header.Get("Traceparent")
	if !traceparentForm.MatchString(t) {
		return ""
	}
	return t
}
