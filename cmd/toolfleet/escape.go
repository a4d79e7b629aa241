package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolfleet/toolfleet/cmd/internal/escape"
	"github.com/toolfleet/toolfleet/cmd/internal/part"
)

// EscapeCmd tries to break out of this machine's sandboxes.
type EscapeCmd struct {
	Runtime   []string `help:"Runtimes to try; default: all that are here, of runc and runsc." placeholder:"NAME"`
	Isolation []string `help:"Isolations to try." default:"container,cell" enum:"container,cell"`
	Why       bool     `help:"Print the reason of every outcome."`
	Image     string   `help:"OCI archive of the hostile tool; default: escape.tar beside this program."`
	Programs  string   `help:"Directory with agent, containerd, its shim and the runtimes; default: beside this program." env:"TOOLFLEET_PROGRAMS"`
	Dir       string   `help:"Directory on a disk to work in." default:"/var/tmp"`
}

// Run prints a line for each attempt. It fails when one was open.
func (c *EscapeCmd) Run(ctx context.Context, term *terminal) (err error) {
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
	dir, err := os.MkdirTemp(c.Dir, "toolfleet-escape-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The bait has to be within reach, but for the sandbox.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	ctx, stop := part.Signals(ctx, func() { os.Exit(exitFailed) })
	defer stop()
	cfg := escape.Config{
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
	return escape.Run(ctx, cfg)
}

func (c *EscapeCmd) openImage() (*os.File, error) {
	name := c.Image
	if name == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, err
		}
		name = filepath.Join(filepath.Dir(exe), "escape.tar")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("no image of the hostile tool: %w; run make escape, or name the archive with --image", err)
	}
	return f, nil
}
