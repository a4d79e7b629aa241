package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/cmd/internal/part"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/worker"
)

// busSlots is how many calls the fleet without sandboxes runs at once beside
// containers.
const busSlots = 8

// bus is a fleet in this process whose sandboxes cost nothing: what is left is
// what the doors, the log, the queue and the worker cost a call.
type bus struct {
	server *natsd.Server
	nc     *nats.Conn
	d      *dispatch.Dispatcher
	url    string
	http   http.Client
	stop   context.CancelFunc
	parts  *errgroup.Group
	n      atomic.Int64
}

// busConfig says what a fleet without sandboxes is made of.
type busConfig struct {
	// dir is where the store is.
	dir string
	// slots is how many calls run at once. Without any there is no worker, and
	// every call waits.
	slots int
	// noop has a handler that does nothing in the place of a worker.
	noop bool
}

func openBus(ctx context.Context, c busConfig) (b *bus, err error) {
	b = &bus{http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.server, err = natsd.Start(ctx, natsd.Config{StoreDir: c.dir}); err != nil {
		return b, err
	}
	if b.nc, err = b.server.Connect(); err != nil {
		return b, err
	}
	logger := slog.New(slog.DiscardHandler)
	p, err := part.OpenBus(ctx, b.nc, part.BusOptions{}, logger)
	if err != nil {
		return b, err
	}
	return b, b.start(ctx, p, c, logger)
}

// start begins the parts of the fleet.
func (b *bus) start(ctx context.Context, p *part.Bus, cfg busConfig, logger *slog.Logger) error {
	echo := catalog.Spec{Name: "echo", Description: "Answers.", Image: "local/none:1", Command: []string{"/tool"}, Parameters: []byte(`{"type":"object"}`)}
	echo.SetDefaults()
	tools, err := catalog.Follow(ctx, catalog.FollowerConfig{Tools: []catalog.Spec{echo}})
	if err != nil {
		return err
	}
	m := metrics.New(part.Registry())
	doors, err := part.StartDispatcher(part.DispatcherConfig{Listen: "127.0.0.1:0"}, p, tools, part.Process{Drain: time.Second}, part.Telemetry{Metrics: m, Logger: logger})
	if err != nil {
		return err
	}
	b.d, b.url = doors.Calls(), doors.URL()
	runs := []func(context.Context) error{p.Log.Run, doors.Run}
	if cfg.slots > 0 {
		runs = append(runs, cfg.work(p, m, logger)...)
	}
	ctx, b.stop = context.WithCancel(ctx)
	b.parts, ctx = errgroup.WithContext(ctx)
	for _, run := range runs {
		b.parts.Go(func() error { return run(ctx) })
	}
	return nil
}

// work is what a worker runs: its slots and its heartbeat.
func (c busConfig) work(p *part.Bus, m *metrics.Metrics, logger *slog.Logger) []func(context.Context) error {
	self := results.Worker{ID: "bench", Incarnation: "1"}
	server := &queue.Server{Queue: p.Queue, Slots: c.slots, Drain: time.Second, Log: logger, Metrics: m}
	if c.noop {
		server.Handler = &noop{log: p.Log, self: self, logger: logger}
	} else {
		server.Handler = &worker.Worker{Self: self, Log: p.Log, Blobs: p.Blobs, Sandboxes: &instant{}, Alive: p.Registry.Alive, Metrics: m, Logger: logger}
	}
	info := queue.WorkerInfo{ID: self.ID, Incarnation: self.Incarnation, Class: queue.DefaultClass, Slots: c.slots}
	return []func(context.Context) error{server.Run, func(ctx context.Context) error {
		return p.Registry.Run(ctx, func() queue.WorkerInfo { return info })
	}}
}

// submit submits a call.
func (b *bus) submit(ctx context.Context, tenant string) (dispatch.Ticket, error) {
	return b.d.Submit(ctx, call.Call{
		Tenant: tenant, ThreadID: "bench", RunID: "bench", Scope: strconv.FormatInt(b.n.Add(1), 10), ToolCallID: "call",
		Tool: "echo", Arguments: "{}",
	})
}

// call submits a call and waits for its result.
func (b *bus) call(ctx context.Context) error { return b.callOf(ctx, call.DefaultTenant) }

// callOf is a tenant's call.
func (b *bus) callOf(ctx context.Context, tenant string) error {
	t, err := b.submit(ctx, tenant)
	if err != nil {
		return err
	}
	return b.await(ctx, t)
}

// await waits for a call's result.
func (b *bus) await(ctx context.Context, t dispatch.Ticket) error {
	st, err := b.d.Await(ctx, t)
	if err == nil && st.Result.IsError {
		err = fmt.Errorf("bench: the call failed: %s", st.Result.Error.Message)
	}
	return err
}

// busBody is a call of the fleet without sandboxes as the HTTP door takes it.
var busBody = []byte(`{"tool":"echo","arguments":{}}`)

// post does the same through the HTTP door.
func (b *bus) post(ctx context.Context) error { return post(ctx, &b.http, b.url, busBody) }

// post makes a call at a door and sees that it succeeded.
func post(ctx context.Context, client *http.Client, url string, body []byte) error {
	status, answer, err := send(ctx, client, url+"/v1/calls", body)
	if err == nil && (status != http.StatusOK || !bytes.Contains(answer, []byte(`"succeeded"`))) {
		err = fmt.Errorf("the call was answered with %d: %.500s", status, answer)
	}
	return err
}

func send(ctx context.Context, client *http.Client, url string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// effort is what many calls took together.
type effort struct {
	// rate is calls a second.
	rate float64
	// cpu is the time that the whole process was on a processor for one call,
	// its client among the rest.
	cpu time.Duration
}

// flood makes n calls, so many of them at once.
func flood(ctx context.Context, n, atOnce int, f func(context.Context) error) (effort, error) {
	g, gctx := errgroup.WithContext(ctx)
	began, used := time.Now(), cpuTime()
	var done atomic.Int64
	for range atOnce {
		g.Go(func() error {
			for done.Add(1) <= int64(n) {
				if err := f(gctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return effort{}, err
	}
	return effort{rate: float64(n) / time.Since(began).Seconds(), cpu: (cpuTime() - used) / time.Duration(n)}, nil
}

// cpuTime is how long this process has been on a processor.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for a bad argument only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (b *bus) close() error {
	var err error
	if b.stop != nil {
		b.stop()
		err = b.parts.Wait()
	}
	b.http.CloseIdleConnections()
	if b.nc != nil {
		b.nc.Close()
	}
	if b.server != nil {
		b.server.Shutdown()
	}
	return err
}
