package aguidoor

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/internal/problem"
	"github.com/toolfleet/toolfleet/results"
)

// maxReason bounds what a request may put into the results of calls, in bytes.
const maxReason = 200

// cancel is DELETE /agui/threads/{threadId}/runs/{runId}. It is no part of
// AG-UI, which has no way from a client into a run that goes on. 202 says that
// the end was asked for: the stream of the run tells when it has come. 200 says
// that there was nothing left to end.
func (d *Door) cancel(w http.ResponseWriter, r *http.Request) {
	reason := r.URL.Query().Get("reason")
	if len(reason) > maxReason {
		problem.Write(w, http.StatusBadRequest, "The reason is longer than 200 bytes.")
		return
	}
	run := results.RunRef{
		Tenant:   dispatch.CallerOf(r.Context()).Tenant,
		ThreadID: r.PathValue("threadId"), RunID: r.PathValue("runId"),
	}
	ended, err := d.config.Dispatcher.CancelRun(r.Context(), run, reason)
	switch {
	case errors.Is(err, dispatch.ErrNotFound):
		problem.Write(w, http.StatusNotFound, "There is no such run, or no more.")
		return
	case err != nil:
		d.fail(w, r, err)
		return
	}
	status, word := http.StatusAccepted, "cancelling"
	if ended {
		status, word = http.StatusOK, "ended"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// When it fails the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]string{"threadId": run.ThreadID, "runId": run.RunID, "status": word})
}
