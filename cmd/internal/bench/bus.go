package bench

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/cmd/internal/part"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// bus is a fleet without sandboxes: what is left is what the log and the queue
// cost a call.
type bus struct {
	server *natsd.Server
	nc     *nats.Conn
	d      *dispatch.Dispatcher
	stop   context.CancelFunc
	done   []chan error
	n      int
}

// echo answers every call at once.
type echo struct{ log *results.Log }

// Handle implements [queue.Handler].
func (e echo) Handle(ctx context.Context, d *queue.Delivery) {
	ref := results.Ref{Tenant: d.Job.Call.Tenant, Key: d.Job.Call.Key()}
	_, err := e.log.Finish(ctx, ref, d.Job.Call.ToolCallID, call.Result{Content: []agui.Part{agui.Text("6")}})
	if err == nil {
		_ = d.Ack(ctx) // a lost one shows as a call that takes 15 s
	}
}

func openBus(ctx context.Context, dir string) (*bus, error) {
	c, err := catalog.New([]catalog.Spec{{
		APIVersion: catalog.APIVersion, Kind: catalog.Kind, Name: "echo", Description: "Answers.", Type: catalog.TypeFunction, Image: "local/none:1",
		Command: []string{"/tool"}, Class: "default", QueueTimeout: catalog.Duration(time.Minute), Parameters: []byte(`{"type":"object"}`),
	}})
	if err != nil {
		return nil, err
	}
	b := &bus{}
	if b.server, err = natsd.Start(ctx, natsd.Config{StoreDir: dir}); err != nil {
		return nil, err
	}
	if b.nc, err = b.server.Connect(); err != nil {
		b.server.Shutdown()
		return nil, err
	}
	p, err := part.OpenBus(ctx, b.nc, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	logger := slog.New(slog.DiscardHandler)
	b.d = &dispatch.Dispatcher{Log: p.Log, Queue: p.Queue, Catalog: c, Blobs: p.Blobs, Logger: logger}
	server := &queue.Server{Queue: p.Queue, Handler: echo{p.Log}, Slots: 1, Drain: time.Second, Log: logger}
	ctx, b.stop = context.WithCancel(ctx)
	for _, run := range []func(context.Context) error{p.Log.Run, server.Run} {
		done := make(chan error, 1)
		go func() { done <- run(ctx) }()
		b.done = append(b.done, done)
	}
	return b, nil
}

// call submits a call and follows it to its result.
func (b *bus) call(ctx context.Context) error {
	b.n++
	t, err := b.d.Submit(ctx, call.Call{
		Tenant: call.DefaultTenant, ThreadID: "bench", RunID: "bench", Scope: strconv.Itoa(b.n), ToolCallID: "call",
		Tool: "echo", Arguments: "{}",
	})
	if err != nil {
		return err
	}
	_, err = b.d.Wait(ctx, t.Ref)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (b *bus) close() error {
	var errs []error
	if b.stop != nil {
		b.stop()
		for _, done := range b.done {
			errs = append(errs, <-done)
		}
	}
	b.nc.Close()
	b.server.Shutdown()
	return errors.Join(errs...)
}
