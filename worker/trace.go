package worker

import (
	"log/slog"
	"time"

	"github.com/toolfleet/toolfleet/internal/tracing"
)

// trace begins the span of a delivery, under the submit's. A delivery that comes
// again has a span of its own beside the first; how long it waited is told for the
// first alone, since the others' time since the admission was not all waiting.
func (w *Worker) trace(a *attempt, delivered int) *tracing.Span {
	c := &a.job.Call
	span := w.Tracer.Start(c.Traceparent, "execute_tool "+c.Tool, tracing.Consumer, a.began,
		slog.String("messaging.system", "nats"), slog.String("messaging.operation.type", "process"),
		slog.String("gen_ai.operation.name", "execute_tool"), slog.String("gen_ai.tool.name", c.Tool), slog.String("gen_ai.tool.call.id", c.ToolCallID),
		slog.String("toolfleet.call", string(a.ref.Key)), slog.String("toolfleet.tenant", a.ref.Tenant),
		slog.String("toolfleet.worker", a.Self.ID), slog.Int64("toolfleet.delivery", int64(delivered)))
	if a.first {
		span.Step("queue", a.began.Add(-a.queued), a.began)
	}
	return span
}

// step tells of a part of the delivery that began at a moment and is over.
func (a *attempt) step(name string, began time.Time, attrs ...slog.Attr) {
	a.span.Step(name, began, time.Now(), attrs...)
}
