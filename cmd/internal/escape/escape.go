// Package escape lets a hostile tool loose in real sandboxes and judges what
// came of it. The tool is sandbox/sandboxtest/escape: it tries some two hundred
// ways out or up and tells of each whether it was open.
//
// What a tool says about itself is one half. The other is seen from the host,
// which puts out bait (ports and sockets to be reached, a file to be read) and
// looks at what no tool may change or use up; see [witness].
package escape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
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
	// Why says to print the reason of every outcome, not only of those that
	// are open or absent.
	Why bool
	// Out takes a line for each attempt, and one with the sums at the end.
	Out io.Writer
}

// ImageName is the name of the hostile tool's image.
const ImageName = "local/escape:1"

// MinTried is how many attempts each runtime and isolation must have been put
// to. Fewer prove little, whatever came of them.
const MinTried = 50

// ErrOpen says that a way out is open.
var ErrOpen = errors.New("escape: not every attempt was denied")

// Present tells whether a runtime is on this machine.
func (c Config) Present(runtime string) bool {
	if info, err := os.Stat(filepath.Join(c.BinDir, runtime)); err == nil && info.Mode().IsRegular() {
		return true
	}
	_, err := exec.LookPath(runtime)
	return err == nil
}

// Run tries everything and prints it. The error wraps [ErrOpen] when an attempt
// was open; any other says that something could not be tried. It leaves nothing
// behind.
func Run(ctx context.Context, c Config) (err error) {
	for _, name := range c.Runtimes {
		if !c.Present(name) {
			return fmt.Errorf("escape: the runtime %s is neither in %s nor in PATH", name, c.BinDir)
		}
	}
	daemon, err := containerd.StartDaemon(ctx, containerd.DaemonConfig{BinDir: c.BinDir, StateDir: filepath.Join(c.Dir, "state")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, daemon.Stop(context.WithoutCancel(ctx))) }()
	rt, err := containerd.New(containerd.Config{
		Address: daemon.Address(), Owner: "escape", AgentPath: c.Agent, BinDir: c.BinDir, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	if _, err := rt.Import(ctx, c.Image); err != nil {
		return err
	}
	w, err := newWitness(ctx, filepath.Join(c.Dir, "bait"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	sum := &tally{}
	for _, runtime := range c.Runtimes {
		for _, isolation := range c.Isolations {
			s := &scene{
				rt: rt, witness: w, containerd: daemon.Address(),
				spec: sandbox.Spec{Image: ImageName, Pull: "never", Runtime: runtime, Isolation: isolation, Owner: owner(isolation)},
			}
			answers, err := s.play(ctx)
			if err != nil {
				return fmt.Errorf("escape: %s %s: %w", runtime, isolation, err)
			}
			c.print(runtime, isolation, answers)
			sum.add(runtime+" "+isolation, answers)
		}
	}
	fmt.Fprintf(c.Out, "escape: %d tried, %d open\n", sum.tried, sum.open)
	return sum.verdict()
}

// owner is whose cells these are. Containers have none.
func owner(isolation string) string {
	if isolation == "cell" {
		return "default/escape"
	}
	return ""
}

func (c Config) print(runtime, isolation string, answers []answer) {
	for _, a := range answers {
		word, reason := a.word, ""
		if c.Why || word != denied {
			reason = " " + a.reason
		}
		fmt.Fprintf(c.Out, "escape %s %s %s %s%s\n", runtime, isolation, a.name, word, reason)
	}
}

// tally counts over everything that was tried.
type tally struct {
	tried, open int
	short       []error
}

func (t *tally) add(where string, answers []answer) {
	tried := 0
	for _, a := range answers {
		if a.word != absent {
			tried++
		}
		if a.word == open {
			t.open++
		}
	}
	t.tried += tried
	if tried < MinTried {
		t.short = append(t.short, fmt.Errorf("escape: %s: only %d attempts were tried, fewer than %d", where, tried, MinTried))
	}
}

func (t *tally) verdict() error {
	if t.open > 0 {
		return errors.Join(append(t.short, fmt.Errorf("%w: %d are open; the lines say which", ErrOpen, t.open))...)
	}
	return errors.Join(t.short...)
}
