// Package otlp sends spans to an OpenTelemetry collector, over HTTP: the protocol
// that needs no more than this process has already.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
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
	// Endpoint is the collector's URL, such as http://collector:4318; without a
	// path it is that of the protocol, /v1/traces.
	Endpoint string
	// Ratio is the share of the traces that begin here and are kept, from 0 to 1.
	// Whoever brings a trace has decided for it.
	Ratio float64
	// Service and Version say what the process is.
	Service, Version string
	Logger           *slog.Logger
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
// OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE are heeded.
func Open(ctx context.Context, c Config) (*tracing.Tracer, func(), error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, nil, fmt.Errorf("otlp: %q is no URL of a collector such as http://collector:4318", c.Endpoint)
	}
	if c.Ratio < 0 || c.Ratio > 1 {
		return nil, nil, fmt.Errorf("otlp: a share of %v of all traces is not between 0 and 1", c.Ratio)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	// The client tries again by itself, as long as a send may take.
	client, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithTimeout(sendTimeout))
	if err != nil {
		return nil, nil, fmt.Errorf("otlp: %w", err)
	}
	provider := trace.NewTracerProvider(
		trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(c.Ratio))),
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", c.Service), attribute.String("service.version", c.Version))),
		trace.WithBatcher(&loud{SpanExporter: client, logger: c.Logger, endpoint: u.Redacted()},
			trace.WithMaxQueueSize(maxQueue), trace.WithMaxExportBatchSize(maxBatch), trace.WithExportTimeout(sendTimeout)),
	)
	return tracing.NewTracer(provider), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			c.Logger.Warn("the last traces could not be sent", "endpoint", u.Redacted(), "error", err)
		}
	}, nil
}

// loud tells once that a collector takes nothing, and once that it does again. The
// library would tell a logger of its own, each time.
type loud struct {
	trace.SpanExporter
	logger   *slog.Logger
	endpoint string
	failing  atomic.Bool
}

// ExportSpans implements [trace.SpanExporter].
func (l *loud) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	err := l.SpanExporter.ExportSpans(ctx, spans)
	switch was := l.failing.Swap(err != nil); {
	case err != nil && !was:
		l.logger.Warn("the collector takes no traces, and they are lost; calls do not wait for it", "endpoint", l.endpoint, "error", err)
	case err == nil && was:
		l.logger.Info("the collector takes traces again", "endpoint", l.endpoint)
	}
	return nil
}
