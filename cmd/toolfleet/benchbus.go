package main

import (
	"context"
	"errors"
	"os"

	"github.com/toolfleet/toolfleet/cmd/internal/bench"
	"github.com/toolfleet/toolfleet/cmd/internal/part"
)

// BenchBusCmd measures what a call costs beside its sandbox.
type BenchBusCmd struct {
	Only    string `help:"Measure rates, waiting or fair only." enum:",rates,waiting,fair" default:""`
	Dir     string `help:"Directory on a disk to work in." default:"/var/tmp"`
	Rounds  int    `help:"How often each rate is taken." default:"5"`
	Calls   int    `help:"Calls of one rate in one round." default:"2000"`
	Waiting int    `help:"Calls that wait at once while their memory is measured." default:"100000"`
	Tenants int    `help:"Tenants that share the fleet." default:"1000"`
	Flood   int    `help:"Calls that one of them makes at once." default:"10000"`
	// Serve is this program's own second part.
	Serve string `help:"Be the fleet whose waiting calls are measured, on a store in this directory, until standard input ends." hidden:""`
}

// Run measures and prints name-value lines.
func (c *BenchBusCmd) Run(ctx context.Context, term *terminal) (err error) {
	if c.Serve != "" {
		return bench.ServeBus(ctx, c.Serve, term.in, term.out)
	}
	if c.Rounds < 1 || c.Calls < 1 || c.Waiting < 1000 || c.Tenants < 2 || c.Flood < 1 {
		return usagef("at least a round, a call, a flood of one, two tenants and 1000 waiting calls are needed")
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.Dir, "toolfleet-bench-bus-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, stop := part.Signals(ctx, func() { os.Exit(exitFailed) })
	defer stop()
	return bench.RunBus(ctx, bench.BusConfig{
		Only: c.Only, Program: exe, Dir: dir, Rounds: c.Rounds, Calls: c.Calls, Waiting: c.Waiting, Tenants: c.Tenants, Flood: c.Flood,
		Out: term.out, Err: term.err,
	})
}
