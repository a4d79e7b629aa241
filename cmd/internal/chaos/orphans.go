package chaos

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// leftBehind counts what exists because of the sandboxes of a worker that was
// stopped: its containerd is started once more to be asked.
func (f *fleet) leftBehind(ctx context.Context, worker int) (left containerd.Leftovers, err error) {
	d, err := containerd.StartDaemon(ctx, containerd.DaemonConfig{BinDir: f.cfg.BinDir, StateDir: f.state(worker), Logger: f.logger})
	if err != nil {
		return left, fmt.Errorf("chaos: look for what w%d left: %w", worker, err)
	}
	defer func() { err = errors.Join(err, d.Stop(context.WithoutCancel(ctx))) }()
	return containerd.Look(ctx, f.state(worker), f.cfg.Agent)
}

// judgeOrphans looks at every worker.
func (v *verdict) judgeOrphans(ctx context.Context, f *fleet) error {
	for i := range workers {
		left, err := f.leftBehind(ctx, i)
		if err != nil {
			return err
		}
		if left.None() {
			continue
		}
		v.orphans += left.Shims + left.Containers + left.Snapshots + left.Mounts + left.Cgroups + left.NetworkNamespaces + left.Dirs
		v.details = append(v.details, fmt.Sprintf("w%d left behind: %+v", i, left))
	}
	return nil
}
