package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/cmd/internal/part"
	"github.com/toolfleet/toolfleet/internal/health"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/metrics"
)

// UpCmd is the whole fleet in one process: a dispatcher, a worker, a containerd
// of its own, and an embedded NATS server unless --nats names others.
type UpCmd struct {
	NATSListen string          `name:"nats-listen" help:"Address of the embedded NATS server; port 0 takes any." default:"127.0.0.1:4222" env:"TOOLFLEET_NATS_LISTEN"`
	Config     kong.ConfigFlag `help:"YAML file with flag names as keys."`
	part.ToolsConfig
	part.NATSConfig
	part.StreamsConfig
	part.WorkerConfig
	part.DispatcherConfig
	part.TracingConfig
	part.LogConfig
}

// Run runs the fleet until a signal.
//
// The stop is in order: the worker drains while the dispatcher still streams
// what it does, then the doors close, then the log's follower ends, then the
// sandboxes and containerd go, and NATS last.
func (c *UpCmd) Run(ctx context.Context) error {
	logger := c.Logger(os.Stderr)
	if err := c.Check(); err != nil {
		return err
	}
	unlock, err := part.Lock(c.State)
	if err != nil {
		return err
	}
	defer unlock()

	if c.SigningKey == "" {
		if c.SigningKey, err = part.SigningKey(c.State); err != nil {
			return err
		}
	}
	nc, url, shutdown, err := c.connect(ctx, logger)
	if err != nil {
		return err
	}
	defer shutdown()
	defer nc.Close()
	bus, err := part.OpenBus(ctx, nc, part.BusOptions{Replicas: c.Replicas, LogBytes: c.LogBytes(), Lease: c.Lease}, logger)
	if err != nil {
		return err
	}

	reg := part.Registry()
	m := metrics.New(reg)
	tools, err := c.Open(ctx, bus, m, logger)
	if err != nil {
		return err
	}
	tracer, flush, err := c.Tracer(ctx, "toolfleet", m, logger)
	if err != nil {
		return err
	}
	defer flush()
	telemetry := part.Telemetry{Metrics: m, Tracer: tracer, Logger: logger}
	// The doors are bound before the worker starts, which takes seconds: a
	// taken port is told at once. They are served when there is a worker.
	var worker atomic.Pointer[part.Worker]
	dispatcher, err := part.StartDispatcher(c.DispatcherConfig, bus, tools, part.Process{
		Metrics: part.Observing(metrics.Handler(reg), func(ctx context.Context) { bus.Observe(ctx, m); worker.Load().Observe(ctx) }),
		Health:  func() health.Report { return worker.Load().Report() },
		// The doors close after the worker has drained. Whoever waits then waits
		// for the next start.
		Closed: func() error { return worker.Load().Stopping() },
		Drain:  doorsDrain,
	}, telemetry)
	if err != nil {
		return err
	}
	ctx, stop := part.Signals(ctx, func() {
		if w := worker.Load(); w != nil {
			w.Hurry()
		}
	})
	defer stop()
	w, err := part.StartWorker(ctx, c.WorkerConfig, bus, tools, telemetry)
	if err != nil {
		return errors.Join(err, dispatcher.Close())
	}
	defer w.Close(ctx)
	worker.Store(w)

	doors, closeDoors := context.WithCancel(context.WithoutCancel(ctx))
	defer closeDoors()
	follow, endFollow := context.WithCancel(context.WithoutCancel(ctx))
	defer endFollow()
	g, gctx := errgroup.WithContext(ctx)
	unlinkDoors := context.AfterFunc(gctx, func() {
		if ctx.Err() == nil { // a part failed: nothing is left to drain for
			closeDoors()
		}
	})
	defer unlinkDoors()
	g.Go(func() error {
		defer closeDoors()
		return w.Run(gctx)
	})
	g.Go(func() error {
		defer endFollow()
		return dispatcher.Run(doors)
	})
	g.Go(func() error { return bus.Log.Run(follow) })
	g.Go(func() error { return tools.Run(follow) })
	fmt.Printf("ready http=%s nats=%s\n", dispatcher.URL(), url)
	return g.Wait()
}

// connect reaches the NATS servers that --nats names, or starts one. shutdown
// stops the one that was started; url is what other processes may ask.
func (c *UpCmd) connect(ctx context.Context, logger *slog.Logger) (nc *nats.Conn, url string, shutdown func(), err error) {
	if c.NATS != "" {
		nc, err = part.Dial(c.NATSConfig, part.RoleFleet, logger)
		return nc, part.Redacted(c.Servers()), func() {}, err
	}
	if c.Replicas > 1 {
		return nil, "", nil, errors.New("replicas: the embedded NATS server is one; name the servers of a cluster with --nats")
	}
	host, port, err := hostPort(c.NATSListen)
	if err != nil {
		return nil, "", nil, err
	}
	server, err := natsd.Start(ctx, natsd.Config{
		StoreDir: filepath.Join(c.State, "nats"), Host: host, Port: port, Log: logger,
	})
	if err != nil {
		return nil, "", nil, err
	}
	if nc, err = server.Connect(); err != nil {
		server.Shutdown()
		return nil, "", nil, err
	}
	return nc, server.ClientURL(), server.Shutdown, nil
}

// doorsDrain is how long the doors of a stopping fleet stay open once its
// worker has drained: time to hand out the last results.
const doorsDrain = time.Second

// hostPort reads --nats-listen. The embedded server knows no passwords, and who
// reaches it can do all that the fleet can, so it listens on loopback only.
func hostPort(address string) (string, int, error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("nats-listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", 0, fmt.Errorf("nats-listen: %s is beyond loopback, and the embedded NATS server has no authentication; run a NATS server of your own and bin/dispatcher and bin/worker with --nats", address)
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("nats-listen: port %q is not a number from 0 to 65535", p)
	}
	if port == 0 {
		return host, natsd.RandomPort, nil
	}
	return host, int(port), nil
}
