package containerd

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/snapshots"
)

// Leftovers counts what exists because of sandboxes. While sandboxes run it is
// what they use; when none should run, everything but zero is a leak. Network
// namespaces are not counted: a sandbox's has no file and goes with its last
// process, and so does its user namespace.
type Leftovers struct {
	Shims      int
	Containers int
	// Snapshots counts writable snapshots; images and their furniture are
	// read-only and stay.
	Snapshots int
	// Mounts counts disks and whatever else is mounted below our directories.
	Mounts  int
	Cgroups int
	// Dirs counts sandboxes with directories, which hold FIFOs and disks, and
	// runc's state.
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
	l.Dirs = len(r.sandboxDirs())
	return l, l.countMounts(r.dir, filepath.Dir(r.cfg.Address))
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
