package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/keeper"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is a NATS server on a port and a directory that outlive it, and the
// parts that were joined to it.
type fleet struct {
	t      *testing.T
	config natsd.Config
	server *natsd.Server
	queue  queue.Options
	boxes  *sandboxes
	parts  atomic.Int64
}

// ackWait is one that a test can sit out.
const ackWait = time.Second

func newFleet(t *testing.T, dir string) *fleet {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := l.Addr().(*net.TCPAddr)
	l.Close()
	f := &fleet{t: t, config: natsd.Config{StoreDir: dir, Port: addr.Port}, queue: queue.Options{AckWait: ackWait}, boxes: newSandboxes(t)}
	f.up()
	return f
}

func (f *fleet) up()   { f.t.Helper(); f.server = natsdtest.StartWith(f.t, f.config) }
func (f *fleet) down() { f.server.Shutdown() }

// bus is what one process has of JetStream.
type bus struct {
	nc       *nats.Conn
	log      *results.Log
	queue    *queue.Queue
	registry *queue.Registry
	blobs    *blob.Store
	logger   *slog.Logger
}

func (f *fleet) join(kinds ...string) *bus {
	f.t.Helper()
	ctx := f.t.Context()
	name := fmt.Sprint("part ", f.parts.Add(1))
	b := &bus{logger: slog.New(slog.NewTextHandler(f.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("part", name)}
	var err error
	b.nc, err = nats.Connect(f.server.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		f.t.Fatal(err)
	}
	js, err := jetstream.New(b.nc)
	if err != nil {
		f.t.Fatal(err)
	}
	if b.log, err = results.Open(ctx, js, results.Options{Kinds: kinds, Log: b.logger}); err != nil {
		f.t.Fatal(err)
	}
	if b.queue, err = queue.Open(ctx, js, f.queue); err != nil {
		f.t.Fatal(err)
	}
	if b.registry, err = queue.OpenRegistry(ctx, js, queue.Options{}); err != nil {
		f.t.Fatal(err)
	}
	if b.blobs, err = blob.Open(ctx, js, blob.Options{}); err != nil {
		f.t.Fatal(err)
	}
	return b
}

// part is a running process of the fleet, or nearly one.
type part struct {
	*bus
	*dispatch.Dispatcher
	server *queue.Server
	stop   func()
}

// run runs what a process runs until stop, which waits for its end.
func (f *fleet) run(b *bus, runs ...func(context.Context) error) *part {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	var all sync.WaitGroup
	for _, run := range runs {
		all.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				f.t.Error(err)
			}
		})
	}
	p := &part{bus: b, stop: sync.OnceFunc(func() { cancel(); all.Wait(); b.nc.Close() })}
	f.t.Cleanup(p.stop)
	return p
}

// dispatcher starts one, with its scheduler and its keeper.
func (f *fleet) dispatcher() *part {
	f.t.Helper()
	c, err := catalog.New(tools())
	if err != nil {
		f.t.Fatal(err)
	}
	b := f.join()
	s := &keeper.Scheduler{Log: b.log, Queue: b.queue, Logger: b.logger}
	k := &keeper.Keeper{Log: b.log, Queue: b.queue, Registry: b.registry, Scheduler: s, Logger: b.logger}
	p := f.run(b, b.log.Run, s.Run, k.Run)
	p.Dispatcher = &dispatch.Dispatcher{Log: b.log, Queue: b.queue, Scheduler: s, Catalog: c, Blobs: b.blobs, Timeout: time.Second, Logger: b.logger}
	return p
}

// worker starts one. Its stop drains.
func (f *fleet) worker(slots int, drain time.Duration) *part {
	f.t.Helper()
	b := f.join(results.KindCancel)
	self := results.Worker{ID: fmt.Sprint("w-", f.parts.Load()), Incarnation: "1"}
	s := &queue.Server{
		Queue: b.queue, Slots: slots, Drain: drain, Log: b.logger,
		Handler: &worker.Worker{Self: self, Log: b.log, Blobs: b.blobs, Sandboxes: f.boxes, Alive: b.registry.Alive, Logger: b.logger},
	}
	info := func() queue.WorkerInfo {
		return queue.WorkerInfo{ID: self.ID, Incarnation: self.Incarnation, Class: queue.DefaultClass, Slots: slots}
	}
	// As in the worker's program: the registry says that it lives until it has
	// drained, and the log is followed as long.
	drained, done := context.WithCancel(context.WithoutCancel(f.t.Context()))
	p := f.run(b,
		func(ctx context.Context) error { defer done(); return s.Run(ctx) },
		func(context.Context) error { return b.registry.Run(drained, info) },
		func(context.Context) error { return b.log.Run(drained) },
	)
	p.server = s
	return p
}

// tools are one that may be started again and one that may not.
func tools() []catalog.Spec {
	var all []catalog.Spec
	for _, name := range []string{"again", "once"} {
		s := catalog.Spec{Name: name, Description: "For a test.", Image: "local/none:1", Command: []string{"/tool"}, Parameters: []byte(`{"type":"object"}`)}
		s.Annotations.Idempotent = name == "again"
		s.SetDefaults()
		all = append(all, s)
	}
	return all
}

func newCall(tool, id string) call.Call {
	return call.Call{Tenant: call.DefaultTenant, ThreadID: "t", RunID: "r", Scope: id, ToolCallID: id, Tool: tool, Arguments: "{}"}
}

// client makes one call as a client does that does not give up: the same call is
// sent until it is taken, and waited for until it is answered, each time at
// whatever dispatcher is there.
func (f *fleet) client(door func() *dispatch.Dispatcher, tool, id string) (call.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.t.Context()), 2*time.Minute)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for ; ; <-again.C {
		if ctx.Err() != nil {
			return call.Result{}, ctx.Err()
		}
		d := door()
		ticket, err := d.Submit(ctx, newCall(tool, id))
		if errors.Is(err, dispatch.ErrUnavailable) {
			continue
		}
		if err != nil {
			return call.Result{}, err
		}
		// As long as a client's patience with one connection.
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		r, err := d.Wait(bounded, ticket.Ref)
		cancel()
		if err == nil {
			return r, nil
		}
	}
}

// load is calls under way, so many at once.
type load struct {
	f       *fleet
	calls   sync.WaitGroup
	mu      sync.Mutex
	results map[string]call.Result
	done    atomic.Int64
}

// load makes n calls, half of them of each tool.
func (f *fleet) load(door func() *dispatch.Dispatcher, n, atOnce int) *load {
	l := &load{f: f, results: map[string]call.Result{}}
	var next atomic.Int64
	for range atOnce {
		l.calls.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				id := fmt.Sprint("c", i)
				r, err := f.client(door, toolOf(i), id)
				if err != nil {
					f.t.Errorf("call %s: %v", id, err)
				}
				l.mu.Lock()
				l.results[id] = r
				l.mu.Unlock()
				l.done.Add(1)
			}
		})
	}
	return l
}

func toolOf(i int64) string { return []string{"again", "once"}[i%2] }

// await waits until so many calls are done.
func (l *load) await(n int64) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for l.done.Load() < n {
		<-tick.C
	}
}

// verify waits for the end and holds every call against the promises: answered,
// with one result in its log, and a tool that may not be repeated begun once at
// the most. ends are the kinds that are in order beside success.
func (l *load) verify(n int, log *results.Log, ends ...call.Kind) {
	t := l.f.t
	t.Helper()
	l.calls.Wait()
	counts := map[call.Kind]int{}
	for i := 1; i <= n; i++ {
		id := fmt.Sprint("c", i)
		r, tool := l.results[id], toolOf(int64(i))
		counts[r.Kind()]++
		ok := r.Kind() == ""
		for _, kind := range ends {
			ok = ok || r.Kind() == kind && tool == "once"
		}
		if !ok {
			t.Errorf("call %s of %s ended as %q", id, tool, r.Kind())
		}
		// A worker that was stopped between the start's entry and the tool's has
		// interrupted a call whose tool never ran, and cannot know.
		starts, unknown := l.f.boxes.startsOf(id), r.Kind() == call.KindInterrupted
		if starts == 0 && !unknown || tool == "once" && starts > 1 {
			t.Errorf("call %s of %s was started %d times", id, tool, starts)
		}
		if results := resultsOf(t, log, newCall(tool, id)); results != 1 {
			t.Errorf("call %s has %d results", id, results)
		}
	}
	t.Logf("%d calls by their ends: %v", n, counts)
}

// resultsOf counts the results in a call's log.
func resultsOf(t *testing.T, log *results.Log, c call.Call) int {
	t.Helper()
	f, err := log.Follow(t.Context(), results.Ref{Tenant: c.Tenant, Key: c.Key()}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Stop()
	n := 0
	for {
		e, err := f.Next(t.Context())
		if err != nil {
			return n // io.EOF behind the result
		}
		if e.Kind == results.KindResult {
			n++
		}
	}
}
