package part

import (
	"context"
	"log/slog"

	"github.com/toolfleet/toolfleet/internal/tracing"
	"github.com/toolfleet/toolfleet/internal/tracing/otlp"
	"github.com/toolfleet/toolfleet/metrics"
)

// TracingConfig says where a part sends its traces. The tags are kong's.
type TracingConfig struct {
	OTLPEndpoint string  `name:"otlp-endpoint" help:"URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://collector:4318. Each call's spans go there; without it none are made." env:"TOOLFLEET_OTLP_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT"`
	TraceRatio   float64 `help:"Share of the calls that are traced, from 0 to 1. A call whose client traces it itself is traced as the client says." default:"1" env:"TOOLFLEET_TRACE_RATIO"`
}

// Telemetry is how a part tells what it does. Metrics and Tracer may be nil.
type Telemetry struct {
	Metrics *metrics.Metrics
	Tracer  *tracing.Tracer
	Logger  *slog.Logger
}

// Tracer opens what the flags say: a nil Tracer when there is no collector. m counts
// what a collector does not take. The returned function sends what is left.
func (c TracingConfig) Tracer(ctx context.Context, service string, m *metrics.Metrics, logger *slog.Logger) (*tracing.Tracer, func(), error) {
	if c.OTLPEndpoint == "" {
		return nil, func() {}, nil
	}
	return otlp.Open(ctx, otlp.Config{Endpoint: c.OTLPEndpoint, Ratio: c.TraceRatio, Service: service, Version: Version(), Dropped: m.SpansDropped, Logger: logger})
}
