package keeper_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/keeper"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// fleet is a server, and what workers wrote down about what they ran.
type fleet struct {
	*testing.T
	server *natsd.Server

	mu     sync.Mutex
	starts map[call.Key]int
	// order is the scopes of the calls, as they were started.
	order []string
	// running and most count calls by tool and by tenant.
	running, most map[string]int
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{T: t, server: natsdtest.Start(t), starts: map[call.Key]int{}, running: map[string]int{}, most: map[string]int{}}
	// Its workers live, or a keeper would end what they run.
	h := &house{}
	var err error
	if h.r, err = queue.OpenRegistry(t.Context(), natsdtest.JetStreamOn(t, f.server), queue.Options{}); err != nil {
		t.Fatal(err)
	}
	h.beat(t)
	return f
}

// process is a dispatcher without doors: a log, a queue, a scheduler and
// a keeper on a connection of their own.
type process struct {
	log       *results.Log
	queue     *queue.Queue
	scheduler *keeper.Scheduler
	registry  *queue.Registry
	nc        *nats.Conn
	// stop ends it as a signal does.
	stop func()
}

// join starts a process.
func (f *fleet) join(share func(string) (int, int)) *process {
	f.Helper()
	p := &process{nc: natsdtest.Connect(f, f.server)}
	js, err := jetstream.New(p.nc)
	if err != nil {
		f.Fatal(err)
	}
	if p.log, err = results.Open(f.Context(), js, results.Options{}); err != nil {
		f.Fatal(err)
	}
	if p.queue, err = queue.Open(f.Context(), js, queue.Options{}); err != nil {
		f.Fatal(err)
	}
	if p.registry, err = queue.OpenRegistry(f.Context(), js, queue.Options{}); err != nil {
		f.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(f.Output(), nil))
	p.scheduler = &keeper.Scheduler{Log: p.log, Queue: p.queue, Share: share, Logger: logger}
	k := &keeper.Keeper{Log: p.log, Queue: p.queue, Registry: p.registry, Scheduler: p.scheduler, Logger: logger}
	keeper.SetSettle(k, time.Second)
	ctx, cancel := context.WithCancel(f.Context())
	var g errgroup.Group
	for _, run := range []func(context.Context) error{p.log.Run, p.scheduler.Run, k.Run} {
		g.Go(func() error { return run(ctx) })
	}
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := g.Wait(); err != nil && !p.nc.IsClosed() {
			f.Error(err)
		}
	})
	f.Cleanup(p.stop)
	return p
}

// work starts a worker that runs each call by run and answers it; nil takes no
// time.
func (f *fleet) work(p *process, slots int, run func(ctx context.Context, job catalog.Job)) {
	f.Helper()
	s := &queue.Server{Queue: p.queue, Slots: slots, Drain: time.Millisecond, Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		if err := f.handle(ctx, p, d, run); err != nil && ctx.Err() == nil {
			f.Errorf("worker: %v", err)
		}
	})}
	ctx, cancel := context.WithCancel(f.Context())
	var g errgroup.Group
	g.Go(func() error { return s.Run(ctx) })
	f.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			f.Error(err)
		}
	})
}

func (f *fleet) handle(ctx context.Context, p *process, d *queue.Delivery, run func(context.Context, catalog.Job)) error {
	ref := refOf(d.Job)
	if st, err := p.log.Look(ctx, ref); err != nil || st.Result != nil {
		return d.Ack(ctx)
	}
	if _, _, err := p.log.Start(ctx, ref, results.Marker{Worker: living, Attempt: 1}); err != nil {
		return err
	}
	c := d.Job.Call
	f.begin(c, d.Delivered)
	if run != nil {
		run(ctx, d.Job)
	}
	f.end(c)
	if _, err := p.log.Finish(ctx, ref, c.ToolCallID, call.Result{Content: []agui.Part{agui.Text("done")}}); err != nil {
		return err
	}
	return d.Ack(ctx)
}

func (f *fleet) begin(c call.Call, delivered int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delivered != 1 {
		f.Errorf("%s was delivered %d times", c.Scope, delivered)
	}
	f.starts[c.Key()]++
	f.order = append(f.order, c.Scope)
	for _, name := range []string{c.Tool, c.Tenant} {
		f.running[name]++
		f.most[name] = max(f.most[name], f.running[name])
	}
}

func (f *fleet) end(c call.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[c.Tool]--
	f.running[c.Tenant]--
}

// mostOf is how many calls of a tool or a tenant ran at a time.
func (f *fleet) mostOf(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most[name]
}

func refOf(job catalog.Job) results.Ref {
	return results.Ref{Tenant: job.Call.Tenant, Key: job.Call.Key()}
}

// newJob is a call of a tenant; scope tells it from others.
func newJob(tenant, tool, scope string) catalog.Job {
	return catalog.Job{
		Version: call.Version,
		Call: call.Call{
			Version: call.Version, Tenant: tenant, ThreadID: "t", RunID: "r", Scope: scope, ToolCallID: "c", Tool: tool,
			Priority: call.PriorityInteractive,
		},
		Spec: &catalog.Spec{Name: tool, Class: "default"}, Admitted: time.Now(), Expires: time.Now().Add(time.Hour),
	}
}

// submit admits a call and schedules it, as a dispatcher does.
func (p *process) submit(ctx context.Context, job catalog.Job) error {
	if _, err := p.log.Admit(ctx, job); err != nil {
		return err
	}
	return p.scheduler.Schedule(ctx, job)
}

func (f *fleet) submit(p *process, job catalog.Job) results.Ref {
	f.Helper()
	if err := p.submit(f.Context(), job); err != nil {
		f.Fatal(err)
	}
	return refOf(job)
}

// await waits for results.
func (f *fleet) await(p *process, refs ...results.Ref) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	for _, ref := range refs {
		st, err := p.log.Look(ctx, ref)
		if err == nil {
			_, err = p.log.Await(ctx, ref, st)
		}
		if err != nil {
			f.Fatalf("%s: %v", ref.Key, err)
		}
	}
}

// elected waits until a process schedules.
func (f *fleet) elected(p ...*process) *process {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		for _, p := range p {
			if keeper.Elected(p.scheduler) {
				return p
			}
		}
	}
	f.Fatal("nobody was elected")
	return nil
}

// awaitEmpty waits until nothing is in a stream.
func (f *fleet) awaitEmpty(p *process, streams ...string) {
	f.Helper()
	js, err := jetstream.New(p.nc)
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	for _, name := range streams {
		for left := uint64(1); left > 0; {
			s, err := js.Stream(ctx, name)
			if err != nil {
				f.Fatalf("%d left in %s: %v", left, name, err)
			}
			left = s.CachedInfo().State.Msgs
		}
	}
}

// awaitStarted waits until so many calls were started.
func (f *fleet) awaitStarted(n int) {
	f.Helper()
	deadline, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	for {
		f.mu.Lock()
		got := len(f.order)
		f.mu.Unlock()
		if got >= n {
			return
		}
		if deadline.Err() != nil {
			f.Fatalf("%d of %d calls were started", got, n)
		}
	}
}

// once sees that every call was started, and none twice.
func (f *fleet) once(refs ...results.Ref) {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ref := range refs {
		if n := f.starts[ref.Key]; n != 1 {
			f.Errorf("%s was started %d times", ref.Key, n)
		}
	}
}

// TestABusyToolKeepsNobodyWaiting has more calls of a tool than may run at once
// before calls of another. The busy ones wait without being delivered, so that
// they use no attempt, and all run in the end.
func TestABusyToolKeepsNobodyWaiting(t *testing.T) {
	f := newFleet(t)
	p := f.join(nil)
	release := make(chan struct{})
	f.work(p, 4, func(_ context.Context, job catalog.Job) {
		if job.Call.Tool == "busy" {
			<-release
		}
	})
	f.elected(p)
	var busy, free []results.Ref
	for i := range 20 {
		job := newJob("default", "busy", fmt.Sprint("busy", i))
		job.Spec.MaxInFlight = 2
		busy = append(busy, f.submit(p, job))
	}
	for i := range 20 {
		free = append(free, f.submit(p, newJob("default", "free", fmt.Sprint("free", i))))
	}
	f.await(p, free...)
	close(release)
	f.await(p, busy...)
	if n := f.mostOf("busy"); n != 2 {
		t.Errorf("%d calls of the busy tool ran at a time, want 2", n)
	}
	f.once(append(busy, free...)...)
	for _, ref := range busy {
		if st, err := p.log.Look(t.Context(), ref); err != nil || st.Claims > 1 {
			t.Errorf("%d attempts, %v", st.Claims, err)
		}
	}
	f.awaitEmpty(p, queue.CallsStream, queue.ReadyStream)
}

// TestATenantHasItsLimit is the same for a tenant that may run two calls.
func TestATenantHasItsLimit(t *testing.T) {
	f := newFleet(t)
	p := f.join(func(tenant string) (int, int) { return 1, map[string]int{"small": 2}[tenant] })
	release := make(chan struct{})
	f.work(p, 4, func(_ context.Context, job catalog.Job) {
		if job.Call.Tenant == "small" {
			<-release
		}
	})
	f.elected(p)
	var small, other []results.Ref
	for i := range 10 {
		small = append(small, f.submit(p, newJob("small", "tool", fmt.Sprint("small", i))))
		other = append(other, f.submit(p, newJob("other", "tool", fmt.Sprint("other", i))))
	}
	f.await(p, other...)
	close(release)
	f.await(p, small...)
	if n := f.mostOf("small"); n != 2 {
		t.Errorf("%d calls of the small tenant ran at a time, want 2", n)
	}
	f.once(append(small, other...)...)
}

// TestAFloodDelaysNobodyElse has a tenant with two thousand calls, and then
// others with one each.
func TestAFloodDelaysNobodyElse(t *testing.T) {
	const flood, others, slots = 2_000, 20, 4
	f := newFleet(t)
	p := f.join(nil)
	f.elected(p)
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(32)
	for i := range flood { // nobody works yet: all wait
		g.Go(func() error { return p.submit(ctx, newJob("flood", "tool", fmt.Sprint("flood", i))) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	f.work(p, slots, func(ctx context.Context, _ catalog.Job) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	})
	f.awaitStarted(slots)
	var refs []results.Ref
	for i := range others {
		refs = append(refs, f.submit(p, newJob(fmt.Sprint("other", i), "tool", fmt.Sprint("other", i))))
	}
	close(gate)
	f.await(p, refs...)
	f.mu.Lock()
	defer f.mu.Unlock()
	last := 0
	for i, scope := range f.order {
		if scope[0] == 'o' {
			last = i
		}
	}
	// What was ready before the others came, and a turn of the flood for each turn
	// of the others, whose results may be told a few calls late.
	if most := 4*slots + 2*others; last > most {
		t.Errorf("the last of the others was call %d, want at most %d", last, most)
	}
}

// TestInteractiveGoesBeforeBatch has a slot, twenty batch calls, and then an
// interactive one.
func TestInteractiveGoesBeforeBatch(t *testing.T) {
	f := newFleet(t)
	p := f.join(nil)
	gate := make(chan struct{})
	f.work(p, 1, func(context.Context, catalog.Job) { <-gate })
	f.elected(p)
	var refs []results.Ref
	for i := range 20 {
		job := newJob("default", "tool", fmt.Sprint("batch", i))
		job.Call.Priority = call.PriorityBatch
		refs = append(refs, f.submit(p, job))
	}
	f.awaitStarted(1)
	refs = append(refs, f.submit(p, newJob("default", "tool", "interactive")))
	close(gate)
	f.await(p, refs...)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, scope := range f.order {
		if scope == "interactive" && i > 4 { // the running one, what was ready, what was on its way
			t.Errorf("the interactive call was call %d: %v", i, f.order)
		}
	}
}

// TestPain76AnIdleWorkerTakesWhatWaits has a worker with one slot that is slow,
// five hundred calls, and then an idle worker.
func TestPain76AnIdleWorkerTakesWhatWaits(t *testing.T) {
	f := newFleet(t)
	p := f.join(nil)
	slow := make(chan struct{})
	f.work(p, 1, func(context.Context, catalog.Job) { <-slow })
	f.elected(p)
	var refs []results.Ref
	for i := range 500 {
		refs = append(refs, f.submit(p, newJob("default", "tool", fmt.Sprint(i))))
	}
	f.awaitStarted(1)
	f.work(f.join(nil), 4, nil)
	f.awaitStarted(500)
	close(slow)
	f.await(p, refs...)
	f.once(refs...)
}
