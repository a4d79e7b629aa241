// Command chaos runs a real fleet under faults, or restarts every part of one in
// turn, and verifies that no call was lost, answered twice, or run twice where that
// harms. It is part of no release: `make chaos` and `make rolling` build it and the
// fleet that it runs.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"

	"github.com/toolfleet/toolfleet/cmd/internal/chaos"
	"github.com/toolfleet/toolfleet/cmd/internal/part"
)

type config struct {
	Seed     uint64 `help:"Makes the calls and the schedule of faults." default:"1"`
	Calls    int    `help:"How many calls are made." default:"2000"`
	Rolls    int    `help:"Instead of faults, how often every process is restarted in turn, as the builds in --next and back." default:"0"`
	Next     string `help:"Directory with the builds of another version." type:"path"`
	Images   string `help:"Directory with the OCI archives of the examples." default:"bin/images"`
	Programs string `help:"Directory with agent, containerd, its shim and runc." default:"."`
	Dir      string `help:"Directory on a disk to work in." default:"/var/tmp"`
}

func main() {
	var cfg config
	kong.Parse(&cfg, kong.Description("Runs a fleet under faults and verifies its promises."))
	if err := run(context.Background(), cfg); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// run keeps the directory when something went wrong: the logs are in it.
func run(ctx context.Context, cfg config) error {
	for _, path := range []*string{&cfg.Images, &cfg.Programs} {
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	programs, err := part.FindPrograms(cfg.Programs)
	if err != nil {
		return err
	}
	bin, err := programs.Containerd()
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(cfg.Dir, "toolfleet-chaos-")
	if err != nil {
		return err
	}
	// Sandboxes see a directory in it, and they are nobody here.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	ctx, stop := part.Signals(ctx, func() { os.Exit(1) })
	defer stop()
	do := chaos.Run
	if cfg.Rolls > 0 {
		do = chaos.Roll
	}
	err = do(ctx, chaos.Config{
		Seed: cfg.Seed, Calls: cfg.Calls, Rolls: cfg.Rolls, Next: cfg.Next, Bin: filepath.Dir(exe), Programs: cfg.Programs, Agent: programs.Agent, BinDir: bin,
		Images: cfg.Images, Dir: dir, Out: os.Stdout, Err: os.Stderr,
	})
	if err != nil {
		return fmt.Errorf("%w; everything is in %s", err, dir)
	}
	return os.RemoveAll(dir)
}
