package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/snapshots"
)

// Leftovers counts what exists because of sandboxes. While sandboxes run it is
// what they use; when none should run, everything but zero is a leak. User
// namespaces are not counted: a sandbox's has no file and goes with its last
// process.
type Leftovers struct {
	Shims      int
	Containers int
	// Snapshots counts writable snapshots; images and their furniture are
	// read-only and stay.
	Snapshots int
	// Mounts counts disks and whatever else is mounted below our directories.
	Mounts  int
	Cgroups int
	// NetworkNamespaces counts those that processes in our cgroups are in, the
	// host's aside, and those that a mount below our directories holds open.
	NetworkNamespaces int
	// Dirs counts sandboxes with directories, which hold FIFOs and disks, and
	// runc's state, and shims whose worker died.
	Dirs int
}

// None tells whether nothing is left.
func (l Leftovers) None() bool { return l == Leftovers{} }

// Leftovers looks at containerd and at the host.
func (r *Runtime) Leftovers(ctx context.Context) (Leftovers, error) {
	var l Leftovers
	shims, err := shimsOf(r.cfg.Address)
	if err != nil {
		return l, err
	}
	for _, s := range shims {
		if s.namespace == r.cfg.Namespace {
			l.Shims++
		}
	}
	found, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return l, wrap("list containers", err)
	}
	l.Containers = len(found)
	err = r.client.SnapshotService(snapshotter).Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind == snapshots.KindActive {
			l.Snapshots++
		}
		return nil
	})
	if err != nil {
		return l, wrap("list snapshots", err)
	}
	l.Cgroups = len(r.group.children())
	l.Dirs = len(r.sandboxDirs()) + r.deadShimDirs()
	if l.NetworkNamespaces, err = r.networkNamespaces(); err != nil {
		return l, err
	}
	return l, l.countMounts(r.dir, filepath.Dir(r.cfg.Address))
}

// networkNamespaces counts the network namespaces that live because of
// sandboxes: by their processes, or by a mount.
func (r *Runtime) networkNamespaces() (int, error) {
	host, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return 0, fmt.Errorf("containerd: count network namespaces: %w", err)
	}
	pids, err := r.group.procs()
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{host: true}
	for _, pid := range pids {
		// One whose process has ended meanwhile is gone with it.
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil {
			seen[ns] = true
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0, fmt.Errorf("containerd: count network namespaces: %w", err)
	}
	for ns := range mountedNamespaces(string(mounts), r.dir, filepath.Dir(r.cfg.Address)) {
		seen[ns] = true
	}
	return len(seen) - 1, nil
}

// mountedNamespaces finds the network namespaces ("net:[4026531840]") that a
// mount below one of dirs holds open.
func mountedNamespaces(mountinfo string, dirs ...string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[3], "net:[") {
			continue
		}
		point := unescapeMount(fields[4])
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(point, dir+"/") }) {
			found[fields[3]] = true
		}
	}
	return found
}

func (l *Leftovers) countMounts(dirs ...string) error {
	for _, dir := range dirs {
		points, err := mountsBelow(dir)
		if err != nil {
			return fmt.Errorf("containerd: count mounts: %w", err)
		}
		l.Mounts += len(points)
	}
	return nil
}
