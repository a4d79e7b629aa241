package part

import (
	"context"
	"time"

	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/sandbox"
)

// Observe sets the gauges to what is now. Whoever serves the metrics calls it
// before each scrape, so that a scrape is never older than itself.
func (w *Worker) Observe(ctx context.Context) {
	w.metrics.SetNATS(w.bus.Ready() == nil)
	w.metrics.SetContainerd(w.health.Report().Passed(checkContainerd))
	w.metrics.SetSlots(w.cfg.Slots, w.server.Busy())
	s := w.pool.Stats()
	w.metrics.SetSandboxes(w.runtime.Name(), metrics.Sandboxes{Starting: s.Starting, Warm: s.Warm, Running: s.InUse, Closing: s.Closing})
	for kind, level := range w.pool.Levels() {
		w.metrics.SetPool(kind.Runtime, kind.Isolation, level.Warm, level.Target)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if d, err := w.bus.Queue.Depth(ctx, w.cfg.Class); err == nil {
		w.metrics.SetQueue(w.cfg.Class, d.Waiting, d.InFlight)
		w.metrics.SetInFlightLimit(w.cfg.Class, d.Limit)
	}
}

// Looking at the host reads /proc from end to end and asks containerd, which
// no scrape should wait for, nor be able to bring about.
const (
	hostInterval = 30 * time.Second
	hostTimeout  = 10 * time.Second
)

// lookAtHost counts from time to time what there is on the host because of this
// worker's sandboxes, until ctx is done.
func (w *Worker) lookAtHost(ctx context.Context) error {
	tick := time.NewTicker(hostInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.countHost(ctx)
		}
	}
}

func (w *Worker) countHost(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	left, err := w.runtime.Leftovers(bounded)
	if err != nil {
		if ctx.Err() == nil {
			w.logger.Warn("what sandboxes have on the host could not be counted", "error", err)
		}
		return
	}
	w.metrics.SetHostObjects(metrics.HostObjects{
		Sandboxes: alive(w.pool.Stats()),
		Shims:     left.Shims, Containers: left.Containers, Snapshots: left.Snapshots, Mounts: left.Mounts,
		Cgroups: left.Cgroups, NetworkNamespaces: left.NetworkNamespaces, Directories: left.Dirs,
	})
}

// alive counts the sandboxes that may have something on the host.
func alive(s sandbox.PoolStats) int { return s.Starting + s.Warm + s.InUse + s.Closing }
