package part

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/health"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/worker"
	"github.com/toolfleet/toolfleet/worker/secret"
)

// WorkerConfig is what a worker is told. The tags are kong's.
type WorkerConfig struct {
	State      string            `help:"Directory for the worker's id and its containerd." default:"/var/lib/toolfleet" env:"TOOLFLEET_STATE"`
	Containerd string            `help:"Address of a containerd (2.0 or later) that runs already; without it the worker starts its own." env:"TOOLFLEET_CONTAINERD"`
	Programs   string            `help:"Directory with agent, containerd, its shim and runc; default: beside this program, then .toolchain/bin beside that." env:"TOOLFLEET_PROGRAMS"`
	Class      string            `help:"Class of calls to take." default:"default" env:"TOOLFLEET_CLASS"`
	Slots      int               `help:"Calls run at once; 0 means twice the CPUs." default:"0" env:"TOOLFLEET_SLOTS"`
	Drain      time.Duration     `help:"How long running calls may go on at a stop." default:"60s" env:"TOOLFLEET_DRAIN"`
	WarmMemory int64             `help:"MiB that all idle sandboxes may take together; 0 means an eighth of the machine's memory." default:"0" env:"TOOLFLEET_WARM_MEMORY"`
	IdleMemory int64             `help:"MiB that one idle sandbox is taken to cost." default:"12" env:"TOOLFLEET_IDLE_MEMORY"`
	Runtimes   map[string]string `name:"runtime" help:"A runtime handler that tools may name, beside runc, runsc and crun: the path of an OCI runtime, or containerd's name of a shim, such as io.containerd.kata.v2. May be repeated." placeholder:"NAME=PATH" env:"TOOLFLEET_RUNTIMES"`
	Secrets    string            `help:"File that says which tools and tenants may have which secrets, and where their values are; without it no tool has any." env:"TOOLFLEET_SECRETS"`
	SecretsCA  string            `name:"secrets-ca" help:"File of certificates (PEM) that the hosts of injected secrets are checked by, beside the system's." env:"TOOLFLEET_SECRETS_CA"`
	DiskFloor  int64             `help:"MiB that must be free below the state, and where containerd keeps images, for a call to be started; 0 means a fortieth of the disk, 512 at the most." default:"0" env:"TOOLFLEET_DISK_FLOOR"`
	SubIDBase  uint32            `help:"First user id of the sandboxes' id ranges, each of 65,536." name:"subid-base" default:"100000" env:"TOOLFLEET_SUBID_BASE"`
	ImagesConfig
	EgressConfig
}

// Worker is one running worker part.
type Worker struct {
	cfg     WorkerConfig
	self    results.Worker
	bus     *Bus
	tools   *catalog.Follower
	metrics *metrics.Metrics
	logger  *slog.Logger

	daemon  *containerd.Daemon // nil when the user runs containerd
	runtime *containerd.Runtime
	// runtimes names the handlers that this machine can use, and problems says
	// what is the matter with others.
	runtimes []string
	problems map[string]string
	pool     *warmPool
	images   *images
	secrets  *secret.Store
	// lacks says of tools why they cannot be run here, and ungranted which secrets
	// they name that nobody grants them. Only follow touches the two.
	lacks, ungranted map[string]string
	server           *queue.Server
	started          time.Time
	// health asks for what calls need, and host adds what need not be asked.
	health   *health.Monitor
	draining atomic.Bool
}

// mostMiB is 1 TiB, as for a tool.
const mostMiB = 1 << 20

// StartWorker makes everything a worker needs before it takes calls: its
// containerd, a host swept of what a predecessor left, the images, the pool.
// Close must be called when the error is nil. The tools are followed by whoever
// opened them.
func StartWorker(ctx context.Context, cfg WorkerConfig, bus *Bus, tools *catalog.Follower, t Telemetry) (*Worker, error) {
	m, logger := t.Metrics, t.Logger
	if cfg.Slots < 0 || cfg.Drain < 0 || cfg.Drain > longestDrain {
		return nil, fmt.Errorf("slots must not be negative, and drain must be between 0 and %s", longestDrain)
	}
	if cfg.WarmMemory < 0 || cfg.IdleMemory < 0 || max(cfg.WarmMemory, cfg.IdleMemory) > mostMiB {
		return nil, fmt.Errorf("warm-memory and idle-memory are MiB, between 0 and %d", mostMiB)
	}
	if cfg.DiskFloor < 0 || cfg.DiskFloor > mostMiB {
		return nil, fmt.Errorf("disk-floor is MiB, between 0 and %d", mostMiB)
	}
	if cfg.ImagesUnused <= 0 {
		return nil, errors.New("images-unused must be above 0")
	}
	if !catalog.ValidClass(cfg.Class) {
		return nil, fmt.Errorf("%q cannot be a class of calls", cfg.Class)
	}
	if cfg.Slots == 0 {
		cfg.Slots = 2 * runtime.NumCPU()
	}
	secrets, err := openSecrets(cfg.Secrets, logger)
	if err != nil {
		return nil, err
	}
	roots, err := hostRoots(cfg.SecretsCA)
	if err != nil {
		return nil, err
	}
	network, err := cfg.Policy()
	if err != nil {
		return nil, err
	}
	if err := containerd.Preflight(cfg.State); err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg, bus: bus, tools: tools, metrics: m, logger: logger, secrets: secrets, started: time.Now()}
	if w.self, err = Identity(cfg.State); err != nil {
		return nil, err
	}
	if err = w.startRuntime(ctx); err == nil {
		err = w.lookForRuntimes(ctx)
	}
	if err == nil && cfg.Images != "" {
		err = importImages(ctx, w.runtime, cfg.Images, logger)
	}
	if err != nil {
		w.Close(ctx)
		return nil, err
	}
	w.pool = newWarmPool(sandbox.PoolConfig{
		Runtime: w.runtime, Prefix: w.self.ID, Logger: logger,
		MaxMemory: cfg.WarmMemory << 20, IdleMemory: func(sandbox.Spec) int64 { return cfg.IdleMemory << 20 },
	}, m)
	w.images = &images{runtime: w.runtime, unused: cfg.ImagesUnused, logger: logger}
	w.server = &queue.Server{
		Queue: bus.Queue,
		Handler: &worker.Worker{
			Self: w.self, Log: bus.Log, Dead: bus.Queue.Dead(), Blobs: bus.Blobs, Sandboxes: w.pool,
			Alive: bus.Registry.Alive, Secrets: secrets, Roots: roots, Egress: network, Metrics: m, Tracer: t.Tracer, Logger: logger,
		},
		Class: cfg.Class, Slots: cfg.Slots, Drain: cfg.Drain, Log: logger, Metrics: m,
		Ready: func() bool { return w.host().Err() == nil },
	}
	w.health = health.NewMonitor(logger, w.checks()...)
	return w, nil
}

// startRuntime reaches or starts containerd and sweeps the host.
func (w *Worker) startRuntime(ctx context.Context) error {
	programs, err := FindPrograms(w.cfg.Programs)
	if err != nil {
		return err
	}
	cfg := containerd.Config{
		Address: w.cfg.Containerd, Owner: w.self.ID, AgentPath: programs.Agent,
		SubIDBase: w.cfg.SubIDBase, StateDir: w.cfg.State, Runtimes: w.cfg.Runtimes, Registries: w.cfg.registries(), Pulled: w.metrics.ImagePulled, Logger: w.logger,
	}
	if cfg.Address == "" {
		bin, err := programs.Containerd()
		if err != nil {
			return err
		}
		w.daemon, err = containerd.StartDaemon(ctx, containerd.DaemonConfig{BinDir: bin, StateDir: w.cfg.State, Logger: w.logger})
		if err != nil {
			return err
		}
		cfg.Address, cfg.BinDir = w.daemon.Address(), w.daemon.BinDir()
	}
	if w.runtime, err = containerd.New(cfg); err != nil {
		return err
	}
	if err := w.runtime.Ready(ctx); err != nil {
		return err
	}
	report, err := w.runtime.Sweep(ctx)
	if err != nil {
		return fmt.Errorf("sweep what a predecessor left: %w", err)
	}
	if report != (containerd.SweepReport{}) {
		w.logger.Info("swept what a predecessor left", "report", report)
		w.metrics.SandboxesSwept(w.runtime.Name(), report.Sandboxes)
	}
	return nil
}

// lookForRuntimes finds out which runtime handlers this machine can use, and
// refuses a file's tool that it would get the calls of and could not run. The
// fleet's own tools, and files that change later, do not keep a worker from its
// work.
func (w *Worker) lookForRuntimes(ctx context.Context) error {
	w.problems = map[string]string{}
	for _, h := range w.runtime.Handlers(ctx) {
		if h.Problem == "" {
			w.runtimes = append(w.runtimes, h.Name)
			continue
		}
		w.problems[h.Name] = h.Problem
		w.logger.Info("a runtime that this worker cannot use", "runtime", h.Name, "problem", h.Problem)
	}
	w.logger.Info("runtimes", "usable", strings.Join(w.runtimes, " "))
	state, _ := w.tools.State()
	for _, t := range state.Tools {
		if t.Source != catalog.FromFile || t.Spec.Type == catalog.TypeServer || t.Spec.Class != w.cfg.Class {
			continue
		}
		if why := w.cannot(t.Spec); why != "" {
			return fmt.Errorf("tool %s of class %s %s", t.Spec.Name, t.Spec.Class, why)
		}
	}
	return nil
}

// cannot says why the worker cannot run a tool of its class; "" means that it
// can.
func (w *Worker) cannot(t *catalog.Spec) string {
	if slices.Contains(w.runtimes, t.Runtime) {
		return ""
	}
	problem, known := w.problems[t.Runtime]
	if !known {
		problem = "nobody named it with --runtime"
	}
	return fmt.Sprintf("wants the runtime %s, which this worker does not have: %s; give the tool the class of workers that have it", t.Runtime, problem)
}

// Run takes calls until ctx is done, then drains. The order of the stop is:
// the server drains, then the worker is no longer registered, then the warm
// sandboxes go. Results of a drain still find the registry saying that this
// worker lives.
func (w *Worker) Run(ctx context.Context) error {
	after, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		w.draining.Store(true)
		w.bus.Registry.Tell()
		w.logger.Info("stopping: running calls may finish; a second signal hurries", "running", w.server.Busy(), "drain", w.cfg.Drain)
	})()
	g, gctx := errgroup.WithContext(after)
	g.Go(func() error { return w.pool.Run(gctx) })
	g.Go(func() error { return w.follow(gctx) })
	g.Go(func() error { return w.prepull(gctx) })
	g.Go(func() error { return w.images.run(gctx) })
	g.Go(func() error { return w.bus.Registry.Run(gctx, w.info) })
	g.Go(func() error { return w.health.Run(gctx) })
	g.Go(func() error { return w.sweep(gctx) })
	g.Go(func() error { return w.lookAtHost(gctx) })
	g.Go(func() error {
		defer stop()
		serve, cancel := context.WithCancel(ctx)
		defer cancel()
		unlink := context.AfterFunc(gctx, cancel)
		defer unlink()
		return w.server.Run(serve)
	})
	return g.Wait()
}

// Hurry ends a drain now; a second signal calls it.
func (w *Worker) Hurry() { w.server.Hurry() }

func (w *Worker) info() queue.WorkerInfo {
	host, _ := os.Hostname()
	info := queue.WorkerInfo{
		ID: w.self.ID, Incarnation: w.self.Incarnation, Host: host, Version: Version(), Class: w.cfg.Class,
		Runtimes: w.runtimes, Slots: w.cfg.Slots, Busy: w.server.Busy(), Started: w.started,
		Sandboxes: alive(w.pool.Stats()), Draining: w.draining.Load(),
	}
	for _, level := range w.pool.Levels() {
		info.Warm += level.Warm
		info.WarmTarget += level.Target
	}
	if err := w.Report().Err(); err != nil && !info.Draining {
		info.Problem = err.Error()
	}
	return info
}

// sweepInterval is how often the host is looked over for what has expired.
const sweepInterval = time.Minute

// sweep removes what dead workers of this host left, until ctx is done.
func (w *Worker) sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if report, err := w.runtime.Sweep(ctx); err != nil && ctx.Err() == nil {
			w.logger.Warn("sweep of the host", "error", err)
		} else if report != (containerd.SweepReport{}) {
			w.logger.Info("swept what a dead worker left", "report", report)
			w.metrics.SandboxesSwept(w.runtime.Name(), report.Sandboxes)
		}
	}
}

// Stopping is an error once the worker was told to stop.
func (w *Worker) Stopping() error {
	if w.draining.Load() {
		return errors.New("the worker is stopping")
	}
	return nil
}

// ID is the worker's id.
func (w *Worker) ID() string { return w.self.ID }

// Close removes what the worker made outside the process. It has a deadline of
// its own and may be called once, after Run has returned.
func (w *Worker) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if w.runtime != nil {
		if _, err := w.runtime.Sweep(ctx); err != nil {
			w.logger.Error("sweep at the stop", "error", err)
		}
		if err := w.runtime.Close(); err != nil {
			w.logger.Error("close the runtime", "error", err)
		}
	}
	if w.daemon != nil {
		if err := w.daemon.Stop(ctx); err != nil {
			w.logger.Error("stop containerd", "error", err)
		}
	}
}
