package dispatch

import (
	"log/slog"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/tracing"
)

// trace begins the span of a submit, and makes it the parent of all that the job
// brings about: it stands in the call from here on.
func (d *Dispatcher) trace(job *catalog.Job, began time.Time) *tracing.Span {
	c := &job.Call
	span := d.Tracer.Start(c.Traceparent, "submit", tracing.Producer, began,
		slog.String("messaging.system", "nats"), slog.String("messaging.operation.type", "send"),
		slog.String("gen_ai.tool.name", toolLabel(*job)), slog.String("gen_ai.tool.call.id", c.ToolCallID),
		slog.String("toolfleet.call", string(c.Key())), slog.String("toolfleet.tenant", c.Tenant))
	span.Step("validate", began, time.Now())
	c.Traceparent = span.Traceparent()
	return span
}

// endSpan says how the submit ended: taken, refused, or not taken at all.
func endSpan(span *tracing.Span, job catalog.Job, err error) {
	switch {
	case err != nil:
		span.Fail("not_taken")
	case job.Refusal != nil:
		span.Fail(string(job.Refusal.Kind()))
	}
	span.End()
}
