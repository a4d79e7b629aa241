package containerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/toolfleet/toolfleet/sandbox"
)

// shimRuntime is containerd's name of the shim that calls an OCI runtime's
// program. All but runtimes with a shim of their own go through it.
const shimRuntime = "io.containerd.runc.v2"

// Handler tells of one runtime handler: what a tool names in `runtime:`.
type Handler struct {
	Name string
	// Program is the OCI runtime's path, or containerd's name of a shim. Empty
	// where none was found, and for a runc that containerd finds by itself.
	Program string
	// Version is the first line of what the program says of itself.
	Version string
	// Problem says why this machine cannot use the handler; empty when it can.
	Problem string
}

// handler is one way to start a sandbox's processes.
type handler struct {
	name string
	// program is the OCI runtime that the shim calls; empty leaves it to the
	// shim. flags go before the arguments of the shim's.
	program string
	flags   []string
	// shim is containerd's name of the shim.
	shim string
	// adapt turns the base line into what this runtime takes; nil leaves it.
	adapt func(*specs.Spec, sandbox.Limits)
	// sure is runc, without which nothing works: it is not tried.
	sure bool

	once    sync.Once
	problem error // why it cannot be used; once's
}

// handlers are those that a machine may have: runc, runsc and crun, and those
// that the operator named, each as the path of an OCI runtime or as
// containerd's name of a shim.
func handlers(binDir string, named map[string]string) (map[string]*handler, error) {
	all := map[string]*handler{"runc": {shim: shimRuntime, sure: true}}
	if binDir != "" {
		all["runc"].program = filepath.Join(binDir, "runc")
	}
	for _, name := range []string{"runsc", "crun"} {
		all[name] = &handler{shim: shimRuntime, program: look(binDir, name)}
	}
	for name, what := range named {
		if !handlerName.MatchString(name) {
			return nil, fmt.Errorf("containerd: %q cannot name a runtime; use a-z, 0-9, dot, _ and -", name)
		}
		switch {
		case filepath.IsAbs(what):
			all[name] = &handler{shim: shimRuntime, program: filepath.Clean(what)}
		case shimName.MatchString(what):
			all[name] = &handler{shim: what}
		default:
			return nil, fmt.Errorf("containerd: runtime %s: %q is neither the absolute path of an OCI runtime nor a shim such as io.containerd.kata.v2", name, what)
		}
	}
	for name, h := range all {
		h.name = name
		if name == "runsc" || filepath.Base(h.program) == "runsc" {
			h.flags, h.adapt = runscFlags, forGVisor
		}
	}
	return all, nil
}

var (
	handlerName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	shimName    = regexp.MustCompile(`^[a-z0-9]+(\.[a-z0-9-]+)+$`)
)

// look finds a program in binDir or in PATH, or returns "".
func look(binDir, name string) string {
	if binDir != "" {
		if path, err := exec.LookPath(filepath.Join(binDir, name)); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	return path
}

// usable returns the handler of that name, the default for an empty one, when
// this machine can use it.
func (r *Runtime) usable(ctx context.Context, name string) (*handler, error) {
	name = cmp.Or(name, r.Name())
	h := r.handlers[name]
	if h == nil {
		return nil, fmt.Errorf("containerd: this worker has no runtime %q, only %s; name it with --runtime on workers that have it, and give the tools that want it the class of those workers",
			name, strings.Join(slices.Sorted(maps.Keys(r.handlers)), ", "))
	}
	if err := r.problem(ctx, h); err != nil {
		return nil, fmt.Errorf("containerd: this worker cannot use runtime %s: %w; give the tools that want it the class of workers that can", name, err)
	}
	return h, nil
}

// problem says why this machine cannot use the handler. It is found out once,
// by trying: versions and kernels do not tell.
func (r *Runtime) problem(ctx context.Context, h *handler) error {
	h.once.Do(func() {
		switch {
		case h.sure:
		case h.shim != shimRuntime:
			if _, err := r.client.RuntimeInfo(ctx, h.shim, nil); err != nil {
				h.problem = wrap("ask for the shim "+h.shim, err)
			}
		default:
			h.problem = h.try(ctx, trial{agent: r.agent, dir: r.dir, base: r.cfg.SubIDBase, cgroup: r.sandboxGroup("try-" + h.name)})
		}
	})
	return h.problem
}

// Handlers tells which runtime handlers there are, and which of them this
// machine can use. The first call tries each of them, which takes a second.
func (r *Runtime) Handlers(ctx context.Context) []Handler {
	return describe(r.handlers, func(h *handler) error { return r.problem(ctx, h) })
}

// InspectHandlers is [Runtime.Handlers] for a machine without a containerd that
// runs: runc, runsc and crun. binDir is as in [DaemonConfig], agentPath as in
// [Config].
func InspectHandlers(ctx context.Context, binDir, agentPath string) ([]Handler, error) {
	agent, err := os.ReadFile(agentPath)
	if err != nil {
		return nil, fmt.Errorf("containerd: read the agent: %w", err)
	}
	all, err := handlers(binDir, nil)
	if err != nil {
		return nil, err
	}
	dir, err := makeTrialDir()
	if err != nil {
		return nil, err
	}
	found := describe(all, func(h *handler) error {
		return h.try(ctx, trial{agent: agent, dir: dir, base: defaultSubIDBase, cgroup: cgroup{path: "/toolfleet/" + filepath.Base(dir) + "-" + h.name}})
	})
	if err := os.Remove(dir); err != nil {
		return found, fmt.Errorf("containerd: remove the directory of trials: %w", err)
	}
	return found, nil
}

// describe asks about all handlers at a time.
func describe(all map[string]*handler, problem func(*handler) error) []Handler {
	names := slices.Sorted(maps.Keys(all))
	found := make([]Handler, len(names))
	var asking sync.WaitGroup
	for n, name := range names {
		asking.Go(func() {
			h := all[name]
			found[n] = Handler{Name: name, Program: h.program}
			if h.shim != shimRuntime {
				found[n].Program = h.shim
			} else if h.program != "" {
				found[n].Version = version(h.program)
			}
			if err := problem(h); err != nil {
				found[n].Problem = err.Error()
			}
		})
	}
	asking.Wait()
	return found
}

// info is how a container's record says what runs it. A shim that is not runc's
// has options of its own and gets their defaults.
func (h *handler) info(r *Runtime) (containers.RuntimeInfo, error) {
	info := containers.RuntimeInfo{Name: h.shim}
	if h.shim != shimRuntime {
		return info, nil
	}
	opts := &options.Options{Root: filepath.Join(r.dir, "runc"), BinaryName: h.program}
	var err error
	if len(h.flags) > 0 {
		if opts.BinaryName, err = h.script(cmp.Or(r.cfg.StateDir, r.dir)); err != nil {
			return info, err
		}
	}
	if info.Options, err = typeurl.MarshalAny(opts); err != nil {
		return info, fmt.Errorf("containerd: encode options: %w", err)
	}
	return info, nil
}

// script writes a program that calls the runtime with its flags, and returns
// its path. The shim takes one path and no flags; what runsc reads from a
// container's annotations does not have them all.
func (h *handler) script(dir string) (string, error) {
	dir = filepath.Join(dir, "runtimes")
	path := filepath.Join(dir, h.name)
	text := "#!/bin/sh\nexec " + quote(h.program) + " " + strings.Join(h.flags, " ") + ` "$@"` + "\n"
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", fmt.Errorf("containerd: write the script of runtime %s: %w", h.name, err)
	}
	// Another worker may be running it just now, or writing it.
	f, err := os.CreateTemp(dir, "."+h.name+"-")
	if err != nil {
		return "", fmt.Errorf("containerd: write the script of runtime %s: %w", h.name, err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o755), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("containerd: write the script of runtime %s: %w", h.name, errors.Join(err, os.Remove(f.Name())))
	}
	return path, nil
}

// quote makes one word of a shell out of a path of ours.
func quote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }
