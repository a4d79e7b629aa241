// Package egress lets a hostile tool loose whose network allows a little, and
// judges what it reached. The tool is sandbox/sandboxtest/egress.
//
// All of it happens in a network namespace of its own, where a witness answers on
// every address that matters: the internet's, private ones, the clouds' metadata,
// loopback. So nothing leaves the machine, and whatever is reached is seen: each
// address is called once from the namespace itself before, and must answer.
package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/worker/egress"
)

// Config says where to try it.
type Config struct {
	// Agent is the path of the agent, BinDir the directory with containerd and
	// the runtimes; a runtime that is not there is looked for in PATH.
	Agent, BinDir string
	// Image is an OCI archive of the hostile tool, named [ImageName].
	Image io.Reader
	// Dir is a directory on a disk; everything is made below it.
	Dir string
	// Runtimes and Isolations are tried each with each.
	Runtimes, Isolations []string
	// Why says to print the reason of every outcome, not only of those that are
	// open.
	Why bool
	// Out takes a line for each attempt, and one with the sums at the end.
	Out io.Writer
}

// ImageName is the name of the hostile tool's image.
const ImageName = "local/egress:1"

// MinTried is how many attempts each runtime and isolation must have been put to.
const MinTried = 40

// ErrOpen says that something was reached that must not be.
var ErrOpen = errors.New("egress: not every attempt was denied")

// Present tells whether a runtime is on this machine.
func (c Config) Present(runtime string) bool {
	if info, err := os.Stat(filepath.Join(c.BinDir, runtime)); err == nil && info.Mode().IsRegular() {
		return true
	}
	_, err := exec.LookPath(runtime)
	return err == nil
}

// Run tries everything and prints it. The error wraps [ErrOpen] when an attempt
// was open; any other says that something could not be tried. It must be called in
// a network namespace made for it, see [Alone], and leaves nothing behind but that.
func Run(ctx context.Context, c Config) (err error) {
	for _, name := range c.Runtimes {
		if !c.Present(name) {
			return fmt.Errorf("egress: the runtime %s is neither in %s nor in PATH", name, c.BinDir)
		}
	}
	w, err := newWitness(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	daemon, err := containerd.StartDaemon(ctx, containerd.DaemonConfig{BinDir: c.BinDir, StateDir: filepath.Join(c.Dir, "state")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, daemon.Stop(context.WithoutCancel(ctx))) }()
	rt, err := containerd.New(containerd.Config{
		Address: daemon.Address(), Owner: "egress", AgentPath: c.Agent, BinDir: c.BinDir, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	if _, err := rt.Import(ctx, c.Image); err != nil {
		return err
	}
	s := &scene{rt: rt, witness: w, policy: &egress.Policy{
		Resolver: w.resolver(), AllowPrivate: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/24")},
	}}
	return c.tryAll(ctx, s)
}

func (c Config) tryAll(ctx context.Context, s *scene) error {
	v := verdict{out: c.Out, why: c.Why}
	for _, runtime := range c.Runtimes {
		for _, isolation := range c.Isolations {
			answers, err := s.play(ctx, runtime, isolation)
			if err != nil {
				return fmt.Errorf("egress: %s %s: %w", runtime, isolation, err)
			}
			v.add(runtime, isolation, answers)
		}
	}
	return v.end()
}
