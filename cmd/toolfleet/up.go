package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/cmd/internal/part"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/metrics"
)

// UpCmd is the whole fleet in one process: an embedded NATS server, a
// dispatcher, a worker, and a containerd of its own.
type UpCmd struct {
	Tools  string          `help:"Directory of tool specifications." required:"" env:"TOOLFLEET_TOOLS"`
	NATS   string          `name:"nats-listen" help:"Address of the embedded NATS server; port 0 takes any." default:"127.0.0.1:4222" env:"TOOLFLEET_NATS_LISTEN"`
	Config kong.ConfigFlag `help:"YAML file with flag names as keys."`
	part.WorkerConfig
	part.DispatcherConfig
	part.LogConfig
}

// Run runs the fleet until a signal.
//
// The stop is in order: the worker drains while the dispatcher still streams
// what it does, then the doors close, then the log's follower ends, then the
// sandboxes and containerd go, and NATS last.
func (c *UpCmd) Run(ctx context.Context) error {
	logger := c.Logger(os.Stderr)
	tools, err := catalog.LoadDir(c.Tools)
	if err != nil {
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
	host, port, err := hostPort(c.NATS)
	if err != nil {
		return err
	}
	server, err := natsd.Start(ctx, natsd.Config{
		StoreDir: filepath.Join(c.State, "nats"), Host: host, Port: port, Log: logger,
	})
	if err != nil {
		return err
	}
	defer server.Shutdown()
	nc, err := server.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	bus, err := part.OpenBus(ctx, nc, nil, logger)
	if err != nil {
		return err
	}

	reg := part.Registry()
	m := metrics.New(reg)
	var hurried atomic.Pointer[part.Worker] // nil until there is a worker
	ctx, stop := part.Signals(ctx, func() {
		if w := hurried.Load(); w != nil {
			w.Hurry()
		}
	})
	defer stop()
	worker, err := part.StartWorker(ctx, c.WorkerConfig, bus, tools, m, logger)
	if err != nil {
		return err
	}
	defer worker.Close(ctx)
	hurried.Store(worker)
	dispatcher, err := part.StartDispatcher(c.DispatcherConfig, bus, tools, m, part.Observed{
		Metrics: part.Observing(metrics.Handler(reg), worker.Observe), Ready: worker.Ready,
	}, logger)
	if err != nil {
		return err
	}

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
		return worker.Run(gctx)
	})
	g.Go(func() error {
		defer endFollow()
		return dispatcher.Run(doors)
	})
	g.Go(func() error { return bus.Log.Run(follow) })
	fmt.Printf("ready http=%s nats=%s\n", dispatcher.URL(), server.ClientURL())
	return g.Wait()
}

func hostPort(address string) (string, int, error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("nats-listen: %w", err)
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
