package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolfleet/toolfleet/dispatch"
	problems "github.com/toolfleet/toolfleet/internal/problem"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// errShutdown is the cause of a request's context when the server has to end
// it.
var errShutdown = errors.New("httpapi: the server is shutting down")

// problem makes a problem document.
func problem(status int, detail string) *huma.ErrorModel {
	return &huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail}
}

// writeProblem answers outside of huma, with the same document.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	problems.Write(w, status, detail)
}

// fail turns an error of the dispatcher into what the client sees. What the
// client cannot mend is logged here, once, and its text stays here.
func (s *Server) fail(ctx context.Context, err error) error {
	status, detail := http.StatusInternalServerError, "The fleet failed to answer. The failure is in its log."
	switch {
	case errors.Is(err, dispatch.ErrMalformed):
		status, detail = http.StatusBadRequest, strings.TrimPrefix(err.Error(), dispatch.ErrMalformed.Error()+": ")
	case errors.Is(err, dispatch.ErrConflict):
		status, detail = http.StatusConflict, "The same ids were used before for a call with another tool or other arguments. Use new ids, or ask for that call."
	case errors.Is(err, dispatch.ErrNotFound):
		status, detail = http.StatusNotFound, "There is no such call."
	case errors.Is(context.Cause(ctx), errShutdown):
		status, detail = http.StatusServiceUnavailable, "The server is shutting down. The call goes on: ask for it again."
	case errors.Is(err, results.ErrTooLarge):
		status, detail = http.StatusRequestEntityTooLarge, tooLarge(err)
	case errors.Is(err, dispatch.ErrBusy):
		status, detail = http.StatusTooManyRequests, "As many calls wait as this fleet takes. Those that were taken go on; send this one again later."
		s.config.Logger.Warn("request refused", "error", err)
	case errors.Is(err, results.ErrFull), errors.Is(err, queue.ErrFull):
		status, detail = http.StatusServiceUnavailable, "The fleet's store is nearly full: no new calls are taken until others have ended or its operator has made room. Those that were taken go on."
		s.config.Logger.Warn("request refused", "error", err)
	case errors.Is(err, dispatch.ErrUnavailable):
		status, detail = http.StatusServiceUnavailable, "The fleet cannot take or answer calls now. Try again a little later."
		s.config.Logger.Warn("request failed", "error", err)
	case errors.Is(err, dispatch.ErrFlood):
		status, detail = http.StatusTooManyRequests, "So many calls were refused of late that one more is not even answered. Heed what the refusals say, and try again later."
	case ctx.Err() != nil:
		// The client is gone and reads nothing.
		status = statusClientGone
	default:
		s.config.Logger.Error("request failed", "error", err)
	}
	if status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests {
		return problem(status, detail)
	}
	after := max(1, int(dispatch.RetryAfter(err).Seconds()))
	return huma.ErrorWithHeaders(problem(status, detail), http.Header{"Retry-After": {strconv.Itoa(after)}})
}

// tooLarge names the limit that a call is over.
func tooLarge(err error) string {
	if e, ok := errors.AsType[*results.TooLarge](err); ok {
		return fmt.Sprintf("The call takes %d bytes as one message, with its tool's specification, and the fleet's messages have %d bytes at most (max_payload of its NATS server).", e.Size, e.Limit)
	}
	return "The call is larger than a message of the fleet may be."
}

// statusClientGone is what the request counter shows for a client that left
// before its answer; the number is a custom of web servers.
const statusClientGone = 499

// invalid is how huma answers what does not fit a parameter. This door says
// 400 to every malformed request, so that a client has one case to handle.
const invalid = http.StatusUnprocessableEntity

// as400 makes huma's 422 a 400, on the status line …
func as400(ctx huma.Context, next func(huma.Context)) { next(statusContext{ctx}) }

// humaContext has another name than its method Context, so that it can be
// embedded.
type humaContext huma.Context

type statusContext struct{ humaContext }

// Unwrap lets humago find its own context below.
func (c statusContext) Unwrap() huma.Context { return c.humaContext }

func (c statusContext) SetStatus(code int) {
	if code == invalid {
		code = http.StatusBadRequest
	}
	c.humaContext.SetStatus(code)
}

// … and as400Body in the document. It also drops the values that huma repeats:
// they are the client's own, and may be large.
func as400Body(_ huma.Context, _ string, v any) (any, error) {
	if m, ok := v.(*huma.ErrorModel); ok {
		if m.Status == invalid {
			m.Status, m.Title = http.StatusBadRequest, http.StatusText(http.StatusBadRequest)
		}
		for _, e := range m.Errors {
			e.Value = nil
		}
	}
	return v, nil
}
