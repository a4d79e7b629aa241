// Package tracing makes the spans of a call, and is the one place that knows
// OpenTelemetry.
//
// A call crosses processes and may wait for days between two of them, so its trace
// context travels inside it, as the traceparent that its request brought or that
// its first span has; no goroutine's context carries it. Spans are begun from that
// text, in whichever process has the call:
//
//	submit        the dispatcher: from the request to the queue
//	└ execute_tool the worker: one for each delivery of the job
//	  ├ queue      from the admission; of the first delivery only
//	  ├ sandbox    taking one, warm or cold
//	  ├ run        the tool itself
//	  └ publish    until the log had the result
//
// A span says who, what, how long and how it ended. Arguments, output and secrets
// are never among its attributes.
//
// Without a collector there is no [Tracer]: its nil makes spans that are not
// recorded, cost one small allocation, and still know the trace that the client
// had begun, for the logs.
package tracing

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Tracer begins spans. A nil Tracer begins such as are not recorded. It is safe
// for concurrent use.
type Tracer struct{ tracer trace.Tracer }

// NewTracer makes a tracer of a provider's.
func NewTracer(p trace.TracerProvider) *Tracer {
	return &Tracer{p.Tracer("github.com/toolfleet/toolfleet")}
}

// Kind says which end of a queue a span is at.
type Kind trace.SpanKind

// The kinds of spans that cross a queue; the zero Kind is a span inside a process.
const (
	Producer = Kind(trace.SpanKindProducer)
	Consumer = Kind(trace.SpanKindConsumer)
)

// Span is a span of a call; nil is none. Its methods may be used by one goroutine at
// a time.
type Span struct {
	tracer *Tracer
	ctx    context.Context // carries the span, and nothing else
	span   trace.Span
	// sc is the span's own context, or the parent's where it is not recorded.
	sc trace.SpanContext
}

// Start begins a span at a moment. parent is a traceparent; with one that is empty
// or malformed a trace begins.
func (t *Tracer) Start(parent, name string, kind Kind, at time.Time, attrs ...slog.Attr) *Span {
	ctx := bare()
	if parent != "" {
		ctx = extract(parent)
	}
	if t == nil {
		return &Span{sc: trace.SpanContextFromContext(ctx)}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKind(kind)), trace.WithAttributes(attributes(attrs)...))
	return &Span{tracer: t, ctx: ctx, span: span, sc: span.SpanContext()}
}

func (s *Span) recorded() bool { return s != nil && s.span != nil && s.span.IsRecording() }

// Step tells of a part of the span that is over.
func (s *Span) Step(name string, from, to time.Time, attrs ...slog.Attr) {
	s.StepFailed(name, "", from, to, attrs...)
}

// StepFailed tells of a part of the span that ended in an error of a kind; of one
// that succeeded when kind is empty.
func (s *Span) StepFailed(name, kind string, from, to time.Time, attrs ...slog.Attr) {
	if !s.recorded() || to.Before(from) {
		return
	}
	_, step := s.tracer.tracer.Start(s.ctx, name, trace.WithTimestamp(from), trace.WithAttributes(attributes(attrs)...))
	if kind != "" {
		fail(step, kind)
	}
	step.End(trace.WithTimestamp(to))
}

// Set adds attributes.
func (s *Span) Set(attrs ...slog.Attr) {
	if s.recorded() {
		s.span.SetAttributes(attributes(attrs)...)
	}
}

// Fail says that it ended in an error of a kind, which is from a closed set: a
// message may quote what a tool has said.
func (s *Span) Fail(kind string) {
	if s.recorded() {
		fail(s.span, kind)
	}
}

func fail(span trace.Span, kind string) {
	span.SetStatus(codes.Error, kind)
	span.SetAttributes(attribute.String("error.type", kind))
}

// End ends it now.
func (s *Span) End() {
	if s.recorded() {
		s.span.End()
	}
}

// Traceparent is what a span in another process takes for its parent; empty where
// there is no trace.
func (s *Span) Traceparent() string {
	if s == nil || !s.sc.IsValid() {
		return ""
	}
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(bare(), s.sc), c)
	return c["traceparent"]
}

// Sampled is the id of a traceparent's trace, in 32 hexadecimal digits, if somebody
// keeps that trace.
func Sampled(traceparent string) string {
	if traceparent == "" {
		return ""
	}
	sc := trace.SpanContextFromContext(extract(traceparent))
	if !sc.IsSampled() {
		return ""
	}
	return sc.TraceID().String()
}

// extract is a context with what a traceparent says, if it is one.
func extract(traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(bare(), propagation.MapCarrier{"traceparent": traceparent})
}

// Logger is l, whose lines say which trace and span they belong to.
func (s *Span) Logger(l *slog.Logger) *slog.Logger {
	if s == nil {
		return l
	}
	return about(l, s.sc)
}

// Logger is l, whose lines say which trace and span a traceparent names.
func Logger(l *slog.Logger, traceparent string) *slog.Logger {
	if traceparent == "" {
		return l
	}
	return about(l, trace.SpanContextFromContext(extract(traceparent)))
}

func about(l *slog.Logger, sc trace.SpanContext) *slog.Logger {
	if !sc.IsValid() {
		return l
	}
	return l.With("trace_id", sc.TraceID().String(), "span_id", sc.SpanID().String())
}

// bare carries a span and nothing else: no work hangs on it that could be ended.
func bare() context.Context { return context.Background() } //nolint:forbidigo // see above

// maxValue bounds a text in an attribute, in bytes.
const maxValue = 256

// attributes are OpenTelemetry's. A text that it would not take is mended.
func attributes(attrs []slog.Attr) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(attrs))
	for _, a := range attrs {
		switch v := a.Value; v.Kind() {
		case slog.KindInt64:
			out = append(out, attribute.Int64(a.Key, v.Int64()))
		case slog.KindBool:
			out = append(out, attribute.Bool(a.Key, v.Bool()))
		default:
			text := v.String()
			out = append(out, attribute.String(a.Key, strings.ToValidUTF8(text[:min(len(text), maxValue)], "")))
		}
	}
	return out
}
