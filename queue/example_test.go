package queue_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/queue"
)

// A worker in small: a server with two slots, a job, and a drain.
func ExampleServer() {
	ctx, stop := context.WithCancel(context.Background())
	js, done := exampleJetStream(ctx)
	defer done()
	q, err := queue.Open(ctx, js, queue.Options{})
	if err != nil {
		log.Fatal(err)
	}
	err = q.Push(ctx, catalog.Job{
		Version: call.Version,
		Call:    call.Call{Tenant: "default", ThreadID: "thread-1", Scope: "msg-1", ToolCallID: "call-1", Tool: "word-count"},
		Spec:    &catalog.Spec{Name: "word-count", Class: "default"},
	})
	if err != nil {
		log.Fatal(err)
	}

	s := &queue.Server{Queue: q, Slots: 2, Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		fmt.Println("delivery", d.Delivered, "of a call to", d.Job.Call.Tool)
		if err := d.Ack(ctx); err != nil {
			fmt.Println(err)
		}
		stop() // as SIGTERM does: no more pulls, and Run returns with the last handler
	})}
	if err := s.Run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("drained")
	// Output:
	// delivery 1 of a call to word-count
	// drained
}

// exampleJetStream is a NATS server inside the process.
func exampleJetStream(ctx context.Context) (jetstream.JetStream, func()) {
	dir, err := os.MkdirTemp("", "toolfleet")
	if err != nil {
		log.Fatal(err)
	}
	server, err := natsd.Start(ctx, natsd.Config{StoreDir: dir})
	if err != nil {
		log.Fatal(err)
	}
	nc, err := server.Connect()
	if err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	return js, func() {
		nc.Close()
		server.Shutdown()
		_ = os.RemoveAll(dir)
	}
}
