package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/tracing"
	"github.com/toolfleet/toolfleet/sandbox"
)

// TestTraceOfARedelivery: a delivery that is given back and the one that comes after it
// are two spans below the same parent, in the trace that the call carries. The first
// says what failed, the second how the call ended, and neither what was said in it.
func TestTraceOfARedelivery(t *testing.T) {
	const traceID, parent, canary = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "canary-77e2"
	kept := tracetest.NewInMemoryExporter()
	h := newHouse(t)
	h.Tracer = tracing.NewTracer(trace.NewTracerProvider(trace.WithSyncer(kept)))
	job := h.admit("cat; echo "+canary+" >&2; exit 3", func(j *catalog.Job) {
		j.Call.Traceparent = "00-" + traceID + "-" + parent + "-01"
		j.Call.Arguments = `{"a":"` + canary + `"}`
	})
	h.pool.err = fmt.Errorf("%w: %s", sandbox.ErrImage, canary)
	if err := h.deliver(t.Context(), job); !errors.As(err, new(*errGiveBack)) {
		t.Fatalf("want it given back, got %v", err)
	}
	h.pool.err = nil
	h.run(job)

	var below []string // each delivery's steps and its end, in the order they ended
	var steps strings.Builder
	for _, s := range kept.GetSpans() {
		if s.SpanContext.TraceID().String() != traceID {
			t.Errorf("%q is in trace %s", s.Name, s.SpanContext.TraceID())
		}
		fmt.Fprintf(&steps, "%s:%s ", s.Name, s.Status.Description)
		if (s.Status.Code == codes.Error) != (s.Status.Description != "") {
			t.Errorf("%q has status %+v", s.Name, s.Status)
		}
		if s.Name == "execute_tool sh" {
			if s.Parent.SpanID().String() != parent {
				t.Errorf("a delivery is below %s", s.Parent.SpanID())
			}
			below = append(below, steps.String())
			steps.Reset()
		}
	}
	want := []string{"sandbox:image_unavailable execute_tool sh: ", "sandbox: start: run: publish: execute_tool sh:tool_error "}
	if fmt.Sprint(below) != fmt.Sprint(want) {
		t.Errorf("deliveries %q, want %q", below, want)
	}
	if strings.Contains(fmt.Sprintf("%+v", kept.GetSpans()), canary) {
		t.Error("arguments, output or the text of an error are in the spans")
	}
}
