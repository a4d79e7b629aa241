package tracing_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/toolfleet/toolfleet/internal/tracing"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent  = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// Without a tracer nothing is recorded, and the client's trace is still known.
func TestNoTracer(t *testing.T) {
	var tracer *tracing.Tracer
	s := tracer.Start(parent, "x", tracing.Producer, time.Now(), slog.String("a", "b"))
	s.Step("y", time.Now(), time.Now())
	s.Set(slog.Int64("n", 1))
	s.Fail("internal")
	s.End()
	if got := s.Traceparent(); got != parent {
		t.Errorf("traceparent %q, want the client's", got)
	}
	var log strings.Builder
	s.Logger(slog.New(slog.NewTextHandler(&log, nil))).Info("x")
	if !strings.Contains(log.String(), "trace_id="+traceID) {
		t.Errorf("the log says %q", log.String())
	}
	var nothing *tracing.Span
	nothing.Step("y", time.Now(), time.Now())
	nothing.Set(slog.Int64("n", 1))
	nothing.Fail("internal")
	nothing.End()
	if l := slog.New(slog.DiscardHandler); nothing.Traceparent() != "" || nothing.Logger(l) != l {
		t.Error("no span is one")
	}
	if none := tracer.Start("", "x", 0, time.Now()); none.Traceparent() != "" {
		t.Errorf("a trace %q begins where nobody traces", none.Traceparent())
	}
}

// What is no trace context begins a trace of its own; a later version's is taken.
func TestParents(t *testing.T) {
	tracer, kept := record()
	for _, c := range []struct {
		parent  string
		follows bool
	}{
		{parent, true},
		{"01-" + traceID + "-00f067aa0ba902b7-01-more", true},
		{"", false},
		{"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", false},
		{strings.Repeat("f", 1<<16), false},
		{"00-\xff\n" + traceID, false},
	} {
		kept.Reset()
		s := tracer.Start(c.parent, "x", 0, time.Now())
		s.End()
		spans := kept.GetSpans()
		if len(spans) != 1 || (spans[0].Parent.TraceID().String() == traceID) != c.follows {
			t.Errorf("%.60q: %+v", c.parent, spans)
		}
	}
}

func TestSpan(t *testing.T) {
	tracer, kept := record()
	began := time.Unix(1000, 0)
	s := tracer.Start(parent, "whole", tracing.Consumer, began, slog.String("long", strings.Repeat("ä", 400)))
	s.Step("part", began, began.Add(time.Second))
	s.Step("backwards", began, began.Add(-time.Second))
	s.Fail("timeout")
	s.End()
	spans := kept.GetSpans()
	if len(spans) != 2 || spans[0].Name != "part" || spans[1].Name != "whole" || spans[0].Parent.SpanID() != spans[1].SpanContext.SpanID() {
		t.Fatalf("got %+v", spans)
	}
	if took := spans[0].EndTime.Sub(spans[0].StartTime); took != time.Second {
		t.Errorf("the part took %s", took)
	}
	if long := spans[1].Attributes[0].Value.AsString(); len(long) > 256 || strings.ToValidUTF8(long, "") != long {
		t.Errorf("an attribute of %d bytes", len(long))
	}
	if spans[1].Status.Description != "timeout" {
		t.Errorf("status %+v", spans[1].Status)
	}
	if id := tracing.Sampled(s.Traceparent()); id != traceID {
		t.Errorf("sampled trace %q", id)
	}
	if id := tracing.Sampled(strings.TrimSuffix(parent, "1") + "0"); id != "" {
		t.Errorf("a trace that nobody keeps is %q", id)
	}
}

func record() (*tracing.Tracer, *tracetest.InMemoryExporter) {
	kept := tracetest.NewInMemoryExporter()
	return tracing.NewTracer(trace.NewTracerProvider(trace.WithSyncer(kept))), kept
}

// What a call costs without a collector: two spans and what they tell.
func BenchmarkOff(b *testing.B) {
	var tracer *tracing.Tracer
	b.ReportAllocs()
	for b.Loop() {
		s := tracer.Start("", "execute_tool x", tracing.Consumer, time.Now(), slog.String("a", "b"), slog.Int64("n", 1))
		s.Step("run", time.Now(), time.Now(), slog.Bool("warm", true))
		s.End()
	}
}
