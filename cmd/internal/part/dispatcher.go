package part

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/dispatch/aguidoor"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
	"github.com/toolfleet/toolfleet/internal/health"
	"github.com/toolfleet/toolfleet/keeper"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/tenant"
)

// DispatcherConfig is what a dispatcher is told. The tags are kong's.
type DispatcherConfig struct {
	Listen     string `help:"Address of the HTTP API, health and metrics." default:"127.0.0.1:8080" env:"TOOLFLEET_LISTEN"`
	Tokens     string `help:"File of bearer tokens, 'tenant token' a line; required beyond loopback." env:"TOOLFLEET_TOKENS"`
	SigningKey string `help:"File with the key that signs media URLs, at least 32 bytes, the same for all dispatchers; without it URLs end with the process." type:"path" env:"TOOLFLEET_SIGNING_KEY"`
	PublicURL  string `help:"Base of the URLs that clients fetch media from; default: the address." env:"TOOLFLEET_PUBLIC_URL"`
	Tenants    string `help:"File of the tenants' weights, limits and quotas (docs/operations.md), read again when it changes; without it there are none." type:"path" env:"TOOLFLEET_TENANTS"`
	MaxWaiting int    `help:"How many calls the whole fleet's queues may hold; more are answered with 429. 0 is no limit." default:"200000" env:"TOOLFLEET_MAX_WAITING"`

	Agents     string   `help:"File of the AG-UI agents that the gateway leads to (docs/agui.md); without it there is no gateway." type:"path" env:"TOOLFLEET_AGENTS"`
	CORSOrigin []string `name:"cors-origin" help:"Origins whose pages may use the AG-UI door from a browser, such as https://app.example; none by default." env:"TOOLFLEET_CORS_ORIGIN"`
}

// Dispatcher is one running dispatcher part: the doors, the scheduler and the
// keeper.
type Dispatcher struct {
	calls     *dispatch.Dispatcher
	http      *httpapi.Server
	scheduler *keeper.Scheduler
	tenants   *tenant.Set // nil without a file
	usage     *blob.Usage // nil without quotas
	logger    *slog.Logger
	keeper    *keeper.Keeper
	bus       *Bus
	health    *health.Monitor
	report    func() health.Report
	started   time.Time
}

// Process is what a dispatcher is told by the process around it.
type Process struct {
	// Metrics serves the page of metrics.
	Metrics http.Handler
	// Health says whether the rest of the process is ready, without waiting; nil
	// means that there is none.
	Health func() health.Report
	// Closed says why no calls are taken; nil means that they are.
	Closed func() error
	// Drain is how long requests may go on at a stop; 0 means 10 s.
	Drain time.Duration
}

// StartDispatcher binds the doors. Nothing is served before Run. The tools are
// followed by whoever opened them.
func StartDispatcher(cfg DispatcherConfig, bus *Bus, tools *catalog.Follower, p Process, t Telemetry) (*Dispatcher, error) {
	m, logger := t.Metrics, t.Logger
	// No tool may ask for more than these.
	if err := keeper.CheckHorizon(catalog.MaxQueueTimeout, call.MaxTimeout, longestDrain); err != nil {
		return nil, err
	}
	c := tools.Catalog()
	var err error
	var key []byte
	if cfg.SigningKey != "" {
		if key, err = os.ReadFile(cfg.SigningKey); err != nil {
			return nil, fmt.Errorf("signing key: %w", err)
		}
	}
	var tenants *tenant.Set
	var quotas *dispatch.Quotas
	var usage *blob.Usage
	if cfg.Tenants != "" {
		if tenants, err = tenant.Open(cfg.Tenants); err != nil {
			return nil, err
		}
		usage = bus.Blobs.Usage()
		quotas = dispatch.NewQuotas(tenants, bus.Log, usage)
	}
	scheduler := &keeper.Scheduler{Share: tenants.Share, Log: bus.Log, Queue: bus.Queue, ID: processName(), Metrics: m, Logger: logger}
	d := &dispatch.Dispatcher{Log: bus.Log, Queue: bus.Queue, Scheduler: scheduler, Catalog: c, Blobs: bus.Blobs, Quotas: quotas, MaxWaiting: cfg.MaxWaiting, Closed: p.Closed, Metrics: m, Tracer: t.Tracer, Logger: logger}
	var agents []aguidoor.Agent
	if cfg.Agents != "" {
		if agents, err = aguidoor.ReadAgents(cfg.Agents); err != nil {
			return nil, err
		}
	}
	agui, err := aguidoor.New(aguidoor.Config{Dispatcher: d, Tools: c, Agents: agents, Metrics: m, Logger: logger})
	if err != nil {
		return nil, err
	}
	monitor := health.NewMonitor(logger, bus.checkNATS())
	report := monitor.Report
	if p.Health != nil {
		report = func() health.Report { return append(monitor.Report(), p.Health()...) }
	}
	srv, err := httpapi.New(httpapi.Config{
		Addr: cfg.Listen, TokenFile: cfg.Tokens, PublicURL: cfg.PublicURL, SigningKey: key, Origins: cfg.CORSOrigin,
		Dispatcher: d, Tools: c, Catalogue: tools, Workers: bus.Registry.List, Dispatchers: bus.Dispatchers.List, ID: scheduler.ID, Doors: []httpapi.Door{agui}, Metrics: m, MetricsHandler: p.Metrics, Drain: p.Drain, Health: report, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	return &Dispatcher{
		calls: d, http: srv, scheduler: scheduler, tenants: tenants, usage: usage, logger: logger,
		keeper: &keeper.Keeper{Log: bus.Log, Queue: bus.Queue, Registry: bus.Registry, Scheduler: scheduler, Metrics: m, Logger: logger},
		bus:    bus, health: monitor, report: report, started: time.Now(),
	}, nil
}

// register keeps the dispatcher in the register of dispatchers until ctx is done.
func (d *Dispatcher) register(ctx context.Context) {
	d.bus.Dispatchers.Run(ctx, "d-"+random(8), func() queue.DispatcherInfo {
		info := queue.DispatcherInfo{ID: d.scheduler.ID, Version: Version(), Started: d.started}
		if err := d.report().Err(); err != nil {
			info.Problem = err.Error()
		}
		return info
	}, func(err error) {
		if err != nil {
			d.logger.Warn("this dispatcher is not in the register, and so not in the fleet's status; it serves all the same", "error", err)
			return
		}
		d.logger.Info("this dispatcher is in the register again")
	})
}

// processName tells this process from others, to people.
func processName() string {
	host, _ := os.Hostname() // without a name there is the number
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// longestDrain is the longest drain that the horizon is checked against: the
// dispatcher does not know its workers' own.
const longestDrain = time.Hour

// URL is where the doors are.
func (d *Dispatcher) URL() string { return d.http.URL() }

// Calls is what the doors stand before.
func (d *Dispatcher) Calls() *dispatch.Dispatcher { return d.calls }

// Close gives the address back when Run is not going to be called.
func (d *Dispatcher) Close() error { return d.http.Close() }

// Run serves, schedules and keeps house until ctx is done, then lets requests finish.
func (d *Dispatcher) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.http.Run(ctx) })
	g.Go(func() error { return d.scheduler.Run(ctx) })
	g.Go(func() error { return d.keeper.Run(ctx) })
	g.Go(func() error { d.register(ctx); return nil })
	g.Go(func() error { return d.health.Run(ctx) })
	g.Go(func() error { return giveBackMemory(ctx) })
	g.Go(func() error { return d.tenants.Run(ctx, d.logger) })
	if d.usage != nil {
		g.Go(func() error { return d.usage.Run(ctx, d.logger) })
	}
	return g.Wait()
}
