package part

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/toolfleet/toolfleet/internal/health"
	"github.com/toolfleet/toolfleet/results"
)

// checkNATS asks the servers for the log, since a connection that stands tells
// nothing of a stream that has lost its leader. It is for dispatchers, which are
// few; a worker's heartbeat asks as much.
func (b *Bus) checkNATS() health.Check {
	return health.Check{Name: "nats", Ask: func(ctx context.Context) error {
		if err := b.Ready(); err != nil {
			return err
		}
		if _, err := b.js.Stream(ctx, results.Stream); err != nil {
			return fmt.Errorf("JetStream does not answer for the calls' log (%w); see that most of the NATS servers run", err)
		}
		return nil
	}}
}

// checks are what a worker's calls need and what is worth asking again and again.
func (w *Worker) checks() []health.Check {
	return []health.Check{
		{Name: checkContainerd, Ask: w.runtime.Ready},
		checkDisk(w.cfg.DiskFloor<<20, func(ctx context.Context) ([]string, error) {
			root, err := w.runtime.ImagesRoot(ctx)
			return []string{w.cfg.State, root}, err
		}),
	}
}

const checkContainerd = "containerd"

// host is what the worker's machine lacks for calls to be started on it.
func (w *Worker) host() health.Report {
	report := w.health.Report().With("runtime", w.noRuntime())
	var images error
	if !w.images.ready.Load() {
		images = errors.New("the images of the tools are being pulled for the first time")
	}
	return report.With("images", images)
}

// noRuntime says that no runtime handler starts here. They were tried when the
// worker started.
func (w *Worker) noRuntime() error {
	if len(w.runtimes) > 0 {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(w.problems)) {
		errs = append(errs, fmt.Errorf("%s: %s", name, w.problems[name]))
	}
	return fmt.Errorf("none starts on this machine (%w); mend one and start the worker anew, `toolfleet doctor` helps", errors.Join(errs...))
}

// Report says whether the worker takes calls, and what keeps it from it. It does
// not wait.
func (w *Worker) Report() health.Report {
	if w == nil {
		return health.Report{}.With("worker", errors.New("it is starting"))
	}
	nats := w.bus.Ready()
	if err := w.bus.Registry.Beating(); nats == nil && err != nil {
		nats = fmt.Errorf("the worker cannot register itself: %w", err)
	}
	return append(health.Report{}.With("worker", w.Stopping()).With("nats", nats), w.host()...)
}
