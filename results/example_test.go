package results_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/results"
)

// The life of one call as its log sees it: a dispatcher admits it, a worker
// claims, starts and finishes it, and a client follows.
func ExampleLog() {
	ctx := context.Background()
	js, done := exampleJetStream(ctx)
	defer done()
	l, err := results.Open(ctx, js, results.Options{})
	if err != nil {
		log.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- l.Run(running) }()
	defer func() { stop(); <-ended }()

	c := call.Call{Tenant: "default", ThreadID: "thread-1", Scope: "msg-1", ToolCallID: "call-1", Tool: "word-count"}
	opened, err := l.Admit(ctx, catalog.Job{Version: call.Version, Call: c})
	if err != nil {
		log.Fatal(err)
	}
	ref := results.Ref{Tenant: c.Tenant, Key: c.Key()}

	w := results.Worker{ID: "worker-1", Incarnation: "1"}
	if err := l.Claim(ctx, ref, w, 1); err != nil {
		log.Fatal(err)
	}
	won, _, err := l.Start(ctx, ref, results.Marker{Worker: w, Attempt: 1})
	fmt.Println("may start:", won, err)
	won, _, err = l.Start(ctx, ref, results.Marker{Worker: results.Worker{ID: "worker-2"}, Attempt: 1})
	fmt.Println("another may:", won, err)
	won, err = l.Finish(ctx, ref, c.ToolCallID, call.Result{Content: []agui.Part{agui.Text("2 words")}})
	fmt.Println("result taken:", won, err)
	fmt.Println("and then:", errors.Is(l.Claim(ctx, ref, w, 2), results.ErrEnded))

	f, err := l.Follow(ctx, ref, opened.Seq)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Stop()
	for {
		e, err := f.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("-", e.Kind)
	}
	// Output:
	// may start: true <nil>
	// another may: false <nil>
	// result taken: true <nil>
	// and then: true
	// - claim
	// - start
	// - result
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
