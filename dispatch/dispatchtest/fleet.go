// Package dispatchtest gives tests of the dispatcher and of its doors a whole
// fleet in one process: a real NATS server, a dispatcher, and a worker whose
// tools are Go functions. Only the sandbox is missing. It is imported by tests
// only.
package dispatchtest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/tenant"
)

// Fleet is a dispatcher and everything below it.
type Fleet struct {
	*dispatch.Dispatcher
	Catalog  *catalog.Catalog
	Registry *prometheus.Registry
	NATS     *natsd.Server

	tenants *tenant.Set
}

// Tool is what stands in for a tool: it gets the argument text and answers. It
// is to return when ctx is done.
type Tool func(ctx context.Context, r *Running) call.Result

// New starts a fleet without a worker: calls wait.
func New(t testing.TB, specs ...catalog.Spec) *Fleet {
	t.Helper()
	c, err := catalog.New(specs)
	if err != nil {
		t.Fatal(err)
	}
	return join(t, natsdtest.Start(t), c, nil)
}

// NewWithTenants starts a fleet in which tenants have quotas, as a tenants file
// says them.
func NewWithTenants(t testing.TB, file string, specs ...catalog.Spec) *Fleet {
	t.Helper()
	tenants, err := tenant.Parse([]byte("apiVersion: toolfleet/v1\nkind: Tenants\n" + file))
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.New(specs)
	if err != nil {
		t.Fatal(err)
	}
	return join(t, natsdtest.Start(t), c, tenants)
}

// Alone is [New] on a server that the test may stop.
func Alone(t testing.TB, specs ...catalog.Spec) *Fleet {
	t.Helper()
	return On(t, natsdtest.StartWith(t, natsd.Config{StoreDir: t.TempDir(), Port: natsd.RandomPort}), specs...)
}

// On is [New] on a server of the test's own.
func On(t testing.TB, server *natsd.Server, specs ...catalog.Spec) *Fleet {
	t.Helper()
	c, err := catalog.New(specs)
	if err != nil {
		t.Fatal(err)
	}
	return join(t, server, c, nil)
}

// Second is another dispatcher of the same fleet, as if in another process.
func (f *Fleet) Second(t testing.TB) *Fleet {
	t.Helper()
	return join(t, f.NATS, f.Catalog, f.tenants)
}

// join makes a dispatcher on a server.
func join(t testing.TB, server *natsd.Server, c *catalog.Catalog, tenants *tenant.Set) *Fleet {
	t.Helper()
	js := natsdtest.JetStreamOn(t, server)
	f := &Fleet{Catalog: c, Registry: prometheus.NewRegistry(), NATS: server, tenants: tenants}
	f.Dispatcher = &dispatch.Dispatcher{Catalog: c, Metrics: metrics.New(f.Registry), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	var err error
	if f.Log, err = results.Open(t.Context(), js, results.Options{}); err != nil {
		t.Fatal(err)
	}
	if f.Queue, err = queue.Open(t.Context(), js, queue.Options{}); err != nil {
		t.Fatal(err)
	}
	if f.Blobs, err = blob.Open(t.Context(), js, blob.Options{}); err != nil {
		t.Fatal(err)
	}
	if tenants != nil {
		usage := f.Blobs.Usage()
		f.Quotas = dispatch.NewQuotas(tenants, f.Log, usage)
		Go(t, func(ctx context.Context) error { return usage.Run(ctx, f.Logger) })
	}
	Go(t, func(ctx context.Context) error { return f.Log.Run(ctx) })
	return f
}

// Go runs f until the test ends, and waits for it then.
func Go(t testing.TB, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// Work starts a worker with four slots that runs tools by their names.
func (f *Fleet) Work(t testing.TB, tools map[string]Tool) {
	t.Helper()
	s := &queue.Server{Queue: f.Queue, Handler: &worker{f, t, tools}, Slots: 4, Drain: time.Millisecond, Log: f.Logger}
	Go(t, s.Run)
}

// Spec is a tool that takes {text}, and whatever change makes of it.
func Spec(name string, change func(*catalog.Spec)) catalog.Spec {
	s := catalog.Spec{
		Name: name, Description: "For a test.", Image: "local/" + name + ":1", Command: []string{"/tool"},
		Parameters: []byte(`{"type":"object","required":["text"],"properties":{"text":{"type":"string"},"times":{"type":"integer","minimum":1}},"additionalProperties":false}`),
	}
	if change != nil {
		change(&s)
	}
	s.SetDefaults()
	return s
}

// worker is the second half of a call without a sandbox: claim, start, run,
// result.
type worker struct {
	fleet *Fleet
	t     testing.TB
	tools map[string]Tool
}

var me = results.Worker{ID: "worker-test", Incarnation: "1"}

// Handle implements queue.Handler.
func (w *worker) Handle(ctx context.Context, d *queue.Delivery) {
	if err := w.handle(ctx, d); err != nil && ctx.Err() == nil {
		w.t.Errorf("worker: %v", err)
	}
}

func (w *worker) handle(ctx context.Context, d *queue.Delivery) error {
	c := d.Job.Call
	ref := results.Ref{Tenant: c.Tenant, Key: c.Key()}
	st, err := w.fleet.Log.Look(ctx, ref)
	if err != nil {
		return err
	}
	err = w.fleet.Log.Claim(ctx, ref, me, st.Claims+1)
	if errors.Is(err, results.ErrEnded) {
		return d.Ack(ctx)
	}
	if err != nil {
		return err
	}
	won, _, err := w.fleet.Log.Start(ctx, ref, results.Marker{Worker: me, Attempt: st.Claims + 1})
	if err != nil {
		return err
	}
	if won {
		if err := w.run(ctx, ref, d.Job); err != nil {
			return err
		}
	}
	return d.Ack(ctx)
}

func (w *worker) run(ctx context.Context, ref results.Ref, job catalog.Job) error {
	args, err := w.arguments(ctx, job.Call)
	if err != nil {
		return err
	}
	cancelled, unwatch := w.fleet.Log.Cancelled(ref)
	defer unwatch()
	var watch sync.WaitGroup
	defer watch.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Looked at once the watch has begun, so that no cancel falls between.
	st, err := w.fleet.Log.Look(ctx, ref)
	if err != nil {
		return err
	}
	if st.Cancel != nil {
		cancel()
	}
	watch.Go(func() {
		select {
		case <-cancelled:
			cancel()
		case <-ctx.Done():
		}
	})
	r := &Running{
		Call: job.Call, Args: args, fleet: w.fleet, ref: ref, t: w.t,
		now: call.Activity{ToolCallID: job.Call.ToolCallID, ToolName: job.Call.Tool, Status: call.StatusRunning, Attempt: 1},
	}
	r.publish(r.now.Snapshot(ref.Key), true)
	result := w.tools[job.Call.Tool](ctx, r)
	if ctx.Err() != nil {
		result = call.Cancelled("", result.Content...)
	}
	if result.Error != nil {
		result.Error.Attempt = 1
	}
	result.Execution = &call.Execution{Attempt: 1, Sandbox: "none", Runtime: "test", RunMs: 1}
	_, err = w.fleet.Log.Finish(context.WithoutCancel(ctx), ref, job.Call.ToolCallID, result)
	return err
}

func (w *worker) arguments(ctx context.Context, c call.Call) (string, error) {
	if c.ArgumentsBlob == "" {
		return c.Arguments, nil
	}
	id, err := blob.Parse(c.ArgumentsBlob)
	if err != nil {
		return "", err
	}
	_, body, err := w.fleet.Blobs.Get(ctx, id, 0)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return string(text), err
}

// Running is a call in a [Tool]'s hands.
type Running struct {
	Call call.Call
	Args string

	fleet *Fleet
	ref   results.Ref
	t     testing.TB
	now   call.Activity
}

// Ref names the call's log.
func (r *Running) Ref() results.Ref { return r.ref }

// Update says what the tool has said so far, and publishes it.
func (r *Running) Update(output string, current float64) {
	prev := r.now
	r.now.Seq++
	r.now.Output = output
	r.now.Progress = &call.Progress{Current: current}
	if d, ok := r.now.Delta(r.ref.Key, prev); ok {
		r.publish(d, false)
		return
	}
	r.publish(r.now.Snapshot(r.ref.Key), false)
}

// Blob keeps bytes as the n-th part of the result and returns its reference.
func (r *Running) Blob(ctx context.Context, n int, mimeType string, data []byte) string {
	id := blob.ID{Tenant: r.ref.Tenant, Key: r.ref.Key, N: n}
	if _, err := r.fleet.Blobs.Put(ctx, id, mimeType, data); err != nil {
		r.t.Errorf("worker: %v", err)
	}
	return id.String()
}

// publish appends an activity event. That the call has ended meanwhile is no
// failure.
func (r *Running) publish(ev agui.Event, state bool) {
	err := r.fleet.Log.Progress(r.t.Context(), r.ref, ev, state)
	if err != nil && !errors.Is(err, results.ErrEnded) && r.t.Context().Err() == nil {
		r.t.Errorf("worker: %v", err)
	}
}
