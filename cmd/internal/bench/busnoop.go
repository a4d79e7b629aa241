package bench

import (
	"context"
	"log/slog"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// noop is a handler of deliveries that does for the log what a worker does for
// a call with a warm sandbox, and has no sandbox: it asks whether anything has
// happened to the call, takes the start fence, publishes the result and
// acknowledges. What goes wrong is given back, as a worker would.
type noop struct {
	log    *results.Log
	self   results.Worker
	logger *slog.Logger
}

// Handle implements [queue.Handler].
func (h *noop) Handle(ctx context.Context, d *queue.Delivery) {
	end := d.Ack
	if err := h.run(ctx, d); err != nil {
		h.logger.Warn("given back", "call", d.Job.Call.Key(), "error", err)
		end = func(ctx context.Context) error { return d.Retry(ctx, 0) }
	}
	if err := end(ctx); err != nil {
		h.logger.Warn("not settled", "call", d.Job.Call.Key(), "error", err)
	}
}

func (h *noop) run(ctx context.Context, d *queue.Delivery) error {
	c := d.Job.Call
	ref := results.Ref{Tenant: c.Tenant, Key: c.Key()}
	_, stop := h.log.Cancelled(ref) // a worker watches, and does not ask
	defer stop()
	if d.Delivered > 1 || !h.log.Fresh(&d.Job) {
		untouched, err := h.log.Untouched(ctx, &d.Job)
		if err != nil {
			return err
		}
		if !untouched {
			st, err := h.log.Look(ctx, ref)
			if err != nil || st.Result != nil {
				return err
			}
		}
	}
	if _, _, err := h.log.Start(ctx, ref, results.Marker{Worker: h.self, Attempt: 1}); err != nil {
		return err
	}
	_, err := h.log.Finish(ctx, ref, c.ToolCallID, call.Result{
		CallID: c.ToolCallID, Content: []agui.Part{agui.Text("6")}, Execution: &call.Execution{Attempt: 1},
	})
	return err
}
