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
	l, done := exampleLog(ctx)
	defer done()

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

// NATS as a transport for AG-UI: every entry of a call's log is one event, in
// order, once, and the result is the last. Whoever produces a run can splice
// the activities and the result into it as they come; what the fleet keeps for
// itself travels as CUSTOM events and stays behind.
func ExampleLog_Follow() {
	ctx := context.Background()
	l, done := exampleLog(ctx)
	defer done()

	c := call.Call{Tenant: "default", ThreadID: "thread-1", Scope: "msg-1", ToolCallID: "call-1", Tool: "word-count"}
	ref := results.Ref{Tenant: c.Tenant, Key: c.Key()}
	if _, err := l.Admit(ctx, catalog.Job{Version: call.Version, Call: c}); err != nil {
		log.Fatal(err)
	}
	go work(ctx, l, c) // elsewhere

	run := []agui.Event{
		agui.RunStarted{ThreadID: "thread-1", RunID: "run-1", ProtocolVersion: agui.ProtocolVersion},
		agui.ToolCallStart{ToolCallID: c.ToolCallID, ToolCallName: c.Tool},
		agui.ToolCallEnd{ToolCallID: c.ToolCallID},
	}
	f, err := l.Follow(ctx, ref, 0)
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
		switch e.Kind {
		case results.KindState, results.KindProgress, results.KindResult:
			ev, err := e.Event()
			if err != nil {
				log.Fatal(err)
			}
			run = append(run, ev)
		}
	}
	run = append(run, agui.RunFinished{ThreadID: "thread-1", RunID: "run-1"})

	var v agui.Verifier
	for _, ev := range run {
		if err := v.Check(ev); err != nil {
			log.Fatal(err)
		}
		fmt.Println(ev.EventType())
	}
	fmt.Println("a sound run:", v.End() == nil)
	// Output:
	// RUN_STARTED
	// TOOL_CALL_START
	// TOOL_CALL_END
	// ACTIVITY_SNAPSHOT
	// TOOL_CALL_RESULT
	// RUN_FINISHED
	// a sound run: true
}

// work is what a worker writes of one call.
func work(ctx context.Context, l *results.Log, c call.Call) {
	ref := results.Ref{Tenant: c.Tenant, Key: c.Key()}
	me := results.Worker{ID: "worker-1", Incarnation: "1"}
	if err := l.Claim(ctx, ref, me, 1); err != nil {
		log.Fatal(err)
	}
	if won, _, err := l.Start(ctx, ref, results.Marker{Worker: me, Attempt: 1}); err != nil || !won {
		log.Fatal("not started: ", err)
	}
	running := call.Activity{ToolCallID: c.ToolCallID, ToolName: c.Tool, Status: call.StatusRunning, Attempt: 1}
	if err := l.Progress(ctx, ref, running.Snapshot(ref.Key), true); err != nil {
		log.Fatal(err)
	}
	if _, err := l.Finish(ctx, ref, c.ToolCallID, call.Result{Content: []agui.Part{agui.Text("2 words")}}); err != nil {
		log.Fatal(err)
	}
}

// exampleLog is a log that runs, on a server of its own.
func exampleLog(ctx context.Context) (*results.Log, func()) {
	js, done := exampleJetStream(ctx)
	l, err := results.Open(ctx, js, results.Options{})
	if err != nil {
		log.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- l.Run(running) }()
	return l, func() {
		stop()
		<-ended
		done()
	}
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
