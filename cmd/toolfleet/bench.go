package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/toolfleet/toolfleet/cmd/internal/bench"
	"github.com/toolfleet/toolfleet/cmd/internal/part"
)

// BenchCmd measures a fleet beside bare containers.
type BenchCmd struct {
	Images   string `help:"Directory with the OCI archives of the examples." default:"bin/images"`
	Programs string `help:"Directory with agent, containerd, its shim and runc; default: beside this program." env:"TOOLFLEET_PROGRAMS"`
	Dir      string `help:"Directory on a disk to work in." default:"/var/tmp"`
	Rounds   int    `help:"How often each figure is taken." default:"5"`
	Calls    int    `help:"Calls or containers of one figure in one round." default:"20"`
	Mixed    int    `help:"Calls of all kinds that have to leave nothing behind." default:"2000"`
}

// Run measures and prints name-value lines.
func (c *BenchCmd) Run(ctx context.Context, term *terminal) (err error) {
	if c.Rounds < 1 || c.Calls < 1 {
		return usagef("rounds and calls must be at least 1")
	}
	programs, err := part.FindPrograms(c.Programs)
	if err != nil {
		return err
	}
	bin, err := programs.Containerd()
	if err != nil {
		return err
	}
	images, err := filepath.Abs(c.Images)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.Dir, "toolfleet-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, stop := part.Signals(ctx, func() { os.Exit(exitFailed) })
	defer stop()
	return bench.Run(ctx, bench.Config{
		Program: exe, Programs: programs.Dir(), BinDir: bin, Agent: programs.Agent, Images: images, Dir: dir,
		Fetch:  filepath.Join(filepath.Dir(exe), "fetch"),
		Rounds: c.Rounds, Calls: c.Calls, Mixed: c.Mixed, Out: term.out, Err: term.err,
	})
}
