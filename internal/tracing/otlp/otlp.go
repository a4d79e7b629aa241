// Package otlp sends spans to an OpenTelemetry collector, over HTTP: the protocol
// that needs no more than this process has already.
package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/toolfleet/toolfleet/internal/tracing"
)

// Config says where spans go, and which.
type Config struct {
	// Endpoint is the collector's URL, such as http://collector:4318. The
	// protocol's path, /v1/traces, is added where it does not end in it.
	Endpoint string
	// Ratio is the share of the traces that begin here and are kept, from 0 to 1.
	// Whoever brings a trace has decided for it.
	Ratio float64
	// Service and Version say what the process is.
	Service, Version string
	// Dropped hears of spans that the collector did not get. It may be called by
	// several goroutines at once, and may be nil.
	Dropped func(n int)
	Logger  *slog.Logger
}

// Bounds: what waits for the collector, how much goes at once, and how long one
// send and the last flush may take. What does not fit is dropped, since no call
// may wait for those who watch it.
const (
	maxQueue    = 4096
	maxBatch    = 512
	sendTimeout = 10 * time.Second
	stopTimeout = 5 * time.Second
)

// Open begins to send. The returned function sends what is left, in bounded time,
// and ends it; it is called when no span is begun any more. The environment's
// OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE, OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES are heeded.
func Open(ctx context.Context, c Config) (*tracing.Tracer, func(), error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, nil, fmt.Errorf("otlp: %q is no URL of a collector such as http://collector:4318", c.Endpoint)
	}
	if c.Ratio < 0 || c.Ratio > 1 {
		return nil, nil, fmt.Errorf("otlp: a share of %v of all traces is not between 0 and 1", c.Ratio)
	}
	if !strings.HasSuffix(u.Path, tracesPath) {
		u.Path = strings.TrimSuffix(u.Path, "/") + tracesPath
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", c.Service), attribute.String("service.version", c.Version)), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("otlp: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	// The client tries again by itself, as long as a send may take.
	client, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithTimeout(sendTimeout))
	if err != nil {
		return nil, nil, fmt.Errorf("otlp: %w", err)
	}
	s := &sender{SpanExporter: client, dropped: c.Dropped, logger: c.Logger, endpoint: u.Redacted(), ended: make(chan struct{})}
	provider := trace.NewTracerProvider(
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(c.Ratio))),
		trace.WithResource(about),
		trace.WithSpanProcessor(&gate{s, trace.NewBatchSpanProcessor(s,
			trace.WithMaxQueueSize(maxQueue), trace.WithMaxExportBatchSize(maxBatch), trace.WithExportTimeout(sendTimeout))}),
	)
	return tracing.NewTracer(provider), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			c.Logger.Warn("the last traces could not be sent", "endpoint", u.Redacted(), "error", err)
			// The library gives up waiting and leaves its goroutine to a send that
			// may take as long again: this ends that send, and those behind it.
			_ = client.Shutdown(ctx) // it says only that the time is over
		}
		<-s.ended
	}, nil
}

// tracesPath is where the protocol has a collector take spans.
const tracesPath = "/v1/traces"

// sender counts what a collector does not take, and tells once that it takes
// nothing, and once that it does again. The library would tell a logger of its own,
// each time.
type sender struct {
	trace.SpanExporter
	dropped  func(n int)
	logger   *slog.Logger
	endpoint string
	failing  atomic.Bool
	waiting  atomic.Int64  // spans that are over and not sent yet
	ended    chan struct{} // closed when nothing is sent any more
}

// ExportSpans implements [trace.SpanExporter].
func (s *sender) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	err := s.SpanExporter.ExportSpans(ctx, spans)
	s.waiting.Add(-int64(len(spans)))
	if err != nil {
		s.drop(len(spans))
	}
	switch was := s.failing.Swap(err != nil); {
	case err != nil && !was:
		s.logger.Warn("the collector takes no traces, and they are lost; calls do not wait for it", "endpoint", s.endpoint, "error", err)
	case err == nil && was:
		s.logger.Info("the collector takes traces again", "endpoint", s.endpoint)
	}
	return nil
}

// Shutdown implements [trace.SpanExporter]; the library calls it behind the last send.
func (s *sender) Shutdown(ctx context.Context) error {
	defer close(s.ended)
	return s.SpanExporter.Shutdown(ctx)
}

func (s *sender) drop(n int) {
	if s.dropped != nil {
		s.dropped(n)
	}
}

// gate lets no more spans into the library's queue than it holds. The library drops
// the others too, but keeps their number to itself.
type gate struct {
	sender *sender
	trace.SpanProcessor
}

// OnEnd implements [trace.SpanProcessor].
func (g *gate) OnEnd(span trace.ReadOnlySpan) {
	switch {
	case !span.SpanContext().IsSampled():
	case g.sender.waiting.Add(1) > maxQueue:
		g.sender.waiting.Add(-1)
		g.sender.drop(1)
	default:
		g.SpanProcessor.OnEnd(span)
	}
}
