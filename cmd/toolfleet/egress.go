package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolfleet/toolfleet/cmd/internal/egress"
	"github.com/toolfleet/toolfleet/cmd/internal/part"
)

// EgressCmd tries to reach what a tool's network does not allow.
type EgressCmd struct {
	Runtime   []string `help:"Runtimes to try; default: all that are here, of runc and runsc." placeholder:"NAME"`
	Isolation []string `help:"Isolations to try." default:"container,cell" enum:"container,cell"`
	Why       bool     `help:"Print the reason of every outcome."`
	Image     string   `help:"OCI archive of the hostile tool; default: egress.tar beside this program."`
	Programs  string   `help:"Directory with agent, containerd, its shim and the runtimes; default: beside this program." env:"TOOLFLEET_PROGRAMS"`
	Dir       string   `help:"Directory on a disk to work in." default:"/var/tmp"`
}

// Run prints a line for each attempt. It fails when one was open. All of it runs
// in a network namespace of its own.
func (c *EgressCmd) Run(ctx context.Context, term *terminal) (err error) {
	switch done, code, err := egress.Alone(ctx); {
	case err != nil:
		return fmt.Errorf("run in a network namespace: %w", err)
	case done && code != 0:
		os.Exit(code) // it has said why
	case done:
		return nil
	}
	programs, err := part.FindPrograms(c.Programs)
	if err != nil {
		return err
	}
	bin, err := programs.Containerd()
	if err != nil {
		return err
	}
	image, err := c.openImage()
	if err != nil {
		return err
	}
	defer image.Close()
	dir, err := os.MkdirTemp(c.Dir, "toolfleet-egress-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, stop := part.Signals(ctx, func() { os.Exit(exitFailed) })
	defer stop()
	cfg := egress.Config{
		Agent: programs.Agent, BinDir: bin, Image: image, Dir: dir,
		Runtimes: c.Runtime, Isolations: c.Isolation, Why: c.Why, Out: term.out,
	}
	if len(cfg.Runtimes) == 0 {
		for _, name := range []string{"runc", "runsc"} {
			if cfg.Present(name) {
				cfg.Runtimes = append(cfg.Runtimes, name)
			} else {
				fmt.Fprintf(term.err, "toolfleet: %s is not here; it was not tried\n", name)
			}
		}
	}
	return egress.Run(ctx, cfg)
}

func (c *EgressCmd) openImage() (*os.File, error) {
	name := c.Image
	if name == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, err
		}
		name = filepath.Join(filepath.Dir(exe), "egress.tar")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("no image of the hostile tool: %w; run make egress, or name the archive with --image", err)
	}
	return f, nil
}
