package containerd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/toolfleet/toolfleet/sandbox"
)

// runscFlags are what runsc is called with.
//
// The network is none but a loopback interface. Nothing is laid over the root,
// which is read-only, or over the disk, which would not be charged then.
// Each gofer has a network namespace of its own: the one that all share
// otherwise is a mount which nobody removes. Cgroups are left to runsc: told to
// ignore them, as its users often do, it has no limits at all.
var runscFlags = []string{"--network=none", "--overlay2=none", "--gofer-network-namespace=new", "--host-settings=ignore"}

// What gVisor's own kernel, the sentry, needs of the host beside the tool.
const (
	// sentryMemory is what the sentry and the gofer take, in bytes: 17 MiB when
	// they start, and more with what the tool opens and maps.
	sentryMemory = 64 << 20
	// sentryThreads is how many threads they have: 30 when they start.
	sentryThreads = 48
	// stubThreads is how many threads of the host one of the tool's processes
	// costs, however many threads of its own it has: 2 or 3.
	stubThreads = 2
)

// forGVisor adapts the base line.
//
// The host's cgroup bounds the sentry, and the tool with it. The host sees none
// of the tool's processes, only the threads that the sentry has for them, so
// the number of processes that it comes to is near the tool's limit and not
// exactly that; and when it is reached, the sentry ends. RLIMIT_NPROC, which
// the sentry would keep exactly, is not used: nothing counts its refusals, and
// a tool that failed for them could not be told from any other.
//
// The container's seccomp profile goes: it protects the host's kernel, and
// there the sentry has a narrower filter of its own. The tool's filter is
// loaded into the sentry, by the agent, as everywhere. And /sys is the sentry's,
// which shows nothing of the host.
func forGVisor(s *specs.Spec, l sandbox.Limits) {
	*s.Linux.Resources.Memory.Limit += sentryMemory // swap's limit is the same variable
	*s.Linux.Resources.Pids.Limit = sentryThreads + stubThreads*l.Pids
	s.Linux.Seccomp = nil
	s.Mounts = slices.DeleteFunc(s.Mounts, func(m specs.Mount) bool { return strings.HasPrefix(m.Destination, "/sys") })
	s.Mounts = append(s.Mounts, specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}})
}

// removeRunscState removes runsc's notes on a sandbox whose processes are dead.
// It removes them itself, unless its shim was killed.
func (r *Runtime) removeRunscState(id string) error {
	var errs []error
	for _, name := range []string{id + "_sandbox:" + id + ".state", id + "_sandbox:" + id + ".lock", "runsc-" + id + ".sock"} {
		if err := os.Remove(filepath.Join(r.runcDir(""), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
