// Command worker runs tool calls in sandboxes: it takes ready calls from a
// NATS server, runs each in a fresh containerd sandbox and publishes how it
// ended. It must run as root.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/cmd/internal/part"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/results"
)

type config struct {
	Listen string          `help:"Address of health and metrics; empty means none." default:"127.0.0.1:8081" env:"TOOLFLEET_WORKER_LISTEN"`
	Config kong.ConfigFlag `help:"YAML file with flag names as keys."`
	part.ToolsConfig
	part.WorkerConfig
	part.NATSConfig
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
	var health net.Listener
	if cfg.Listen != "" {
		if health, err = part.Listen(ctx, cfg.Listen); err != nil {
			return err
		}
		defer health.Close()
	}
	nc, err := part.Dial(cfg.NATSConfig, part.RoleWorker, logger)
	if err != nil {
		return err
	}
	defer nc.Close()
	bus, err := part.OpenBus(ctx, nc, part.BusOptions{Kinds: []string{results.KindCancel}, Lease: cfg.Lease, Bind: true}, logger)
	if err != nil {
		return err
	}
	reg := part.Registry()
	m := metrics.New(reg)
	tools, err := cfg.Open(ctx, bus, m, logger)
	if err != nil {
		return err
	}
	var hurried atomic.Pointer[part.Worker] // nil until there is a worker
	ctx, stop := part.Signals(ctx, func() {
		if w := hurried.Load(); w != nil {
			w.Hurry()
		}
	})
	defer stop()
	w, err := part.StartWorker(ctx, cfg.WorkerConfig, bus, tools, m, logger)
	if err != nil {
		return err
	}
	defer w.Close(ctx)
	hurried.Store(w)

	// The log's follower and the health page outlive the drain; when one of
	// them fails, the worker drains too.
	after, end := context.WithCancel(context.WithoutCancel(ctx))
	g, gctx := errgroup.WithContext(after)
	work, drain := context.WithCancel(ctx)
	defer context.AfterFunc(gctx, drain)()
	g.Go(func() error { return bus.Log.Run(gctx) })
	g.Go(func() error { return tools.Run(gctx) })
	if health != nil {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", part.Observing(metrics.Handler(reg), w.Observe))
		mux.Handle("GET /healthz", part.Healthy(nil))
		mux.Handle("GET /readyz", part.Healthy(w.Ready))
		g.Go(func() error { return part.Serve(gctx, health, mux, logger) })
	}
	g.Go(func() error {
		defer end()
		return w.Run(work)
	})
	fmt.Printf("ready nats=%s worker=%s\n", part.Redacted(cfg.Servers()), w.ID())
	return g.Wait()
}
