// Command dispatcher takes tool calls, checks them against their tools'
// schemas and publishes them to a NATS server for the workers; it streams
// their progress and answers them over HTTP, and keeps house: calls that
// nobody takes are answered too.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/cmd/internal/part"
	"github.com/toolfleet/toolfleet/metrics"
)

type config struct {
	Config kong.ConfigFlag `help:"YAML file with flag names as keys."`
	part.ToolsConfig
	part.StreamsConfig
	part.DispatcherConfig
	part.NATSConfig
	part.TracingConfig
	part.LogConfig
}

func main() {
	var cfg config
	kong.Parse(&cfg,
		kong.Description("Takes tool calls and answers them."),
		kong.Configuration(part.YAML))
	if err := run(context.Background(), cfg); err != nil {
		fmt.Fprintln(os.Stderr, "dispatcher:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config) error {
	logger := cfg.Logger(os.Stderr)
	if err := cfg.Check(); err != nil {
		return err
	}
	nc, err := part.Dial(cfg.NATSConfig, part.RoleDispatcher, logger)
	if err != nil {
		return err
	}
	defer nc.Close()
	bus, err := part.OpenBus(ctx, nc, part.BusOptions{Replicas: cfg.Replicas, LogBytes: cfg.LogBytes(), Lease: cfg.Lease}, logger)
	if err != nil {
		return err
	}
	reg := part.Registry()
	m := metrics.New(reg)
	tools, err := cfg.Open(ctx, bus, m, logger)
	if err != nil {
		return err
	}
	tracer, flush, err := cfg.Tracer(ctx, "toolfleet-dispatcher", m, logger)
	if err != nil {
		return err
	}
	defer flush()
	d, err := part.StartDispatcher(cfg.DispatcherConfig, bus, tools, part.Process{Metrics: part.Observing(metrics.Handler(reg), func(ctx context.Context) { bus.Observe(ctx, m) })}, part.Telemetry{Metrics: m, Tracer: tracer, Logger: logger})
	if err != nil {
		return err
	}
	ctx, stop := part.Signals(ctx, func() { os.Exit(1) })
	defer stop()
	// The log's follower outlives the doors: without it each of the streams that
	// they still have would ask the server by itself, twice a second. When it
	// fails, the doors close too.
	after, end := context.WithCancel(context.WithoutCancel(ctx))
	g, gctx := errgroup.WithContext(after)
	doors, drain := context.WithCancel(ctx)
	defer context.AfterFunc(gctx, drain)()
	g.Go(func() error { return bus.Log.Run(gctx) })
	g.Go(func() error { return tools.Run(gctx) })
	g.Go(func() error {
		defer end()
		return d.Run(doors)
	})
	fmt.Printf("ready http=%s nats=%s\n", d.URL(), part.Redacted(cfg.Servers()))
	return g.Wait()
}
