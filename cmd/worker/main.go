// Command worker runs tool calls in sandboxes: it takes ready calls from a
// NATS server, runs each in a fresh containerd sandbox and publishes how it
// ended. It must run as root.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/cmd/internal/part"
	"github.com/toolfleet/toolfleet/internal/health"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/results"
)

type config struct {
	Listen string          `help:"Address of health and metrics; empty means none." default:"127.0.0.1:8081" env:"TOOLFLEET_WORKER_LISTEN"`
	Config kong.ConfigFlag `help:"YAML file with flag names as keys."`
	part.ToolsConfig
	part.WorkerConfig
	part.NATSConfig
	part.TracingConfig
	part.LogConfig
}

func main() {
	var cfg config
	kong.Parse(&cfg,
		kong.Description("Runs tool calls in containerd sandboxes."),
		kong.Configuration(part.YAML))
	if err := run(context.Background(), cfg); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config) error {
	logger := cfg.Logger(os.Stderr)
	if err := cfg.Check(); err != nil {
		return err
	}
	unlock, err := part.Lock(cfg.State)
	if err != nil {
		return err
	}
	defer unlock()
	reg := part.Registry()
	m := metrics.New(reg)
	var running atomic.Pointer[part.Worker] // nil until there is a worker
	if cfg.Listen == "" {
		return work(ctx, cfg, m, &running, logger)
	}
	l, err := part.Listen(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	// The pages are there from the first moment to the last: a worker that waits
	// for a dispatcher, reads its images or drains lives, and must not be taken
	// for one that hangs. When they fail, the worker drains.
	g, gctx := errgroup.WithContext(ctx)
	pages, closePages := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return part.Serve(pages, l, handler(reg, &running), logger) })
	g.Go(func() error {
		defer closePages()
		return work(gctx, cfg, m, &running, logger)
	})
	return g.Wait()
}

// handler serves metrics and health.
func handler(reg *prometheus.Registry, running *atomic.Pointer[part.Worker]) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", part.Observing(metrics.Handler(reg), func(ctx context.Context) {
		if w := running.Load(); w != nil {
			w.Observe(ctx)
		}
	}))
	mux.Handle("GET /healthz", health.Page(func() health.Report { return nil })) // it answers: it lives
	mux.Handle("GET /readyz", health.Page(func() health.Report { return running.Load().Report() }))
	return mux
}

// work is the worker, from its connection to the end of its drain.
func work(ctx context.Context, cfg config, m *metrics.Metrics, running *atomic.Pointer[part.Worker], logger *slog.Logger) error {
	nc, err := part.Dial(cfg.NATSConfig, part.RoleWorker, logger)
	if err != nil {
		return err
	}
	defer nc.Close()
	bus, err := part.OpenBus(ctx, nc, part.BusOptions{Kinds: []string{results.KindCancel}, Lease: cfg.Lease, Bind: true}, logger)
	if err != nil {
		return err
	}
	tools, err := cfg.Open(ctx, bus, m, logger)
	if err != nil {
		return err
	}
	tracer, flush, err := cfg.Tracer(ctx, "toolfleet-worker", m, logger)
	if err != nil {
		return err
	}
	defer flush()
	ctx, stop := part.Signals(ctx, func() {
		if w := running.Load(); w != nil {
			w.Hurry()
		}
	})
	defer stop()
	w, err := part.StartWorker(ctx, cfg.WorkerConfig, bus, tools, part.Telemetry{Metrics: m, Tracer: tracer, Logger: logger})
	if err != nil {
		return err
	}
	defer w.Close(ctx)
	running.Store(w)

	// The log's follower outlives the drain; when it fails, the worker drains too.
	after, end := context.WithCancel(context.WithoutCancel(ctx))
	g, gctx := errgroup.WithContext(after)
	calls, drain := context.WithCancel(ctx)
	defer context.AfterFunc(gctx, drain)()
	g.Go(func() error { return bus.Log.Run(gctx) })
	g.Go(func() error { return tools.Run(gctx) })
	g.Go(func() error {
		defer end()
		return w.Run(calls)
	})
	fmt.Printf("ready nats=%s worker=%s\n", part.Redacted(cfg.Servers()), w.ID())
	return g.Wait()
}
