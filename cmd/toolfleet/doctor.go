package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/toolfleet/toolfleet/cmd/internal/part"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// DoctorCmd says what this machine can do.
type DoctorCmd struct {
	State    string `help:"Directory that a fleet would keep its state in." type:"path" default:"/var/lib/toolfleet" env:"TOOLFLEET_STATE"`
	Programs string `help:"Directory with agent, containerd, its shim and runc; default: beside this program." env:"TOOLFLEET_PROGRAMS"`
}

// Run prints what is there, what is weak and what is missing. It fails when a
// fleet could not run.
func (c *DoctorCmd) Run(ctx context.Context, term *terminal) error {
	programs, findErr := part.FindPrograms(c.Programs)
	bin, _ := programs.Containerd() // Inspect names each one that is missing
	h := containerd.Inspect(bin)
	w := tabwriter.NewWriter(term.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "kernel\t%s\n", h.Kernel)
	fmt.Fprintf(w, "cgroups\t%s\n", h.Cgroups)
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"overlayfs", h.Overlay},
		{"user namespaces", h.UserNamespaces},
		{"seccomp", h.Seccomp},
		{"apparmor", h.AppArmor},
		{"swap limit", h.SwapLimit},
	} {
		fmt.Fprintf(w, "%s\t%s\n", f.name, yesNo(f.has))
	}
	fmt.Fprintf(w, "inotify instances\t%s\n", h.Inotify)
	for _, name := range slices.Sorted(maps.Keys(h.Programs)) {
		version := h.Programs[name]
		if version == "" {
			version = "missing"
		}
		fmt.Fprintf(w, "%s\t%s\n", name, version)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	problems := h.Problems
	if findErr != nil {
		problems = append(problems, findErr.Error())
	}
	if err := checkState(c.State); err != nil {
		problems = append(problems, err.Error())
	}
	if len(problems) == 0 {
		problems = append(problems, runtimes(ctx, term.out, bin, programs.Agent)...)
	}
	for _, s := range h.Warnings {
		fmt.Fprintln(term.out, "warning:", s)
	}
	for _, s := range problems {
		fmt.Fprintln(term.out, "missing:", s)
	}
	if len(problems) > 0 {
		return errors.New("a fleet cannot run here; see above")
	}
	fmt.Fprintln(term.out, "a fleet can run here")
	return nil
}

// runtimes prints which runtimes tools may name here. Each is tried once, which
// needs a machine that could run a fleet; runc alone has to work.
func runtimes(ctx context.Context, out io.Writer, bin, agent string) (problems []string) {
	found, err := containerd.InspectHandlers(ctx, bin, agent)
	if err != nil {
		return []string{err.Error()}
	}
	for _, h := range found {
		switch {
		case h.Problem == "":
			fmt.Fprintf(out, "runtime %s: usable, %s\n", h.Name, h.Version)
		case h.Name == "runc":
			problems = append(problems, "runtime runc: "+h.Problem)
		default:
			fmt.Fprintf(out, "runtime %s: absent, %s\n", h.Name, h.Problem)
		}
	}
	return problems
}

// checkState says why `up` could not keep its state in dir. Where dir is not
// there, the place that it would be made in is looked at, with a directory that
// is gone when this returns: nothing else tells whether one can be made there.
func checkState(dir string) error {
	near := existing(dir)
	if err := containerd.CheckStateDir(near); err != nil {
		return err
	}
	probe, err := os.MkdirTemp(near, ".toolfleet-doctor-")
	if err != nil {
		return fmt.Errorf("nothing can be written to the state directory: %w; choose another with --state", err)
	}
	return os.Remove(probe)
}

// existing is dir or the nearest directory above it that is there: looking at
// a machine must not change it.
func existing(dir string) string {
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
