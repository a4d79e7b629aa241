package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// wordDoor is a door of one's own: a text comes in as the body of a request,
// and its call goes out as an AG-UI run. A door decodes its protocol into a
// call.Call, submits it, and shows its log; the rest is the dispatcher's.
type wordDoor struct{ d *dispatch.Dispatcher }

func (h wordDoor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	args, err := io.ReadAll(http.MaxBytesReader(w, r.Body, call.MaxArguments))
	if err != nil {
		http.Error(w, "the text is too long", http.StatusRequestEntityTooLarge)
		return
	}
	ticket, err := h.d.Submit(ctx, call.Call{
		Tenant:   call.DefaultTenant, // whose it is, authentication decides
		ThreadID: "words", RunID: r.PathValue("id"), Scope: r.PathValue("id"), ToolCallID: r.PathValue("id"),
		Tool: "word-count", Arguments: string(args),
	})
	if errors.Is(err, dispatch.ErrMalformed) {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var run *dispatch.Run
	if err == nil {
		run, err = h.d.Follow(ctx, ticket.Ref, dispatch.FollowOptions{})
	}
	if err != nil {
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	defer run.Close()
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	for {
		ev, err := run.Next(ctx)
		if err != nil {
			return // io.EOF: the run is over; anything else: the client sees it cut
		}
		data, err := agui.Encode(ev.Event)
		if err != nil || agui.WriteFrame(w, agui.Frame{Data: data}) != nil || flush.Flush() != nil {
			return
		}
	}
}

func Example_door() {
	ctx := context.Background()
	d, done := exampleDispatcher(ctx)
	defer done()
	mux := http.NewServeMux()
	mux.Handle("POST /words/{id}", wordDoor{d})
	server := httptest.NewServer(mux)
	defer server.Close()

	res, err := http.Post(server.URL+"/words/7", "application/json", strings.NewReader(`{"text":"to be or not to be"}`)) //nolint:noctx // an example
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	for frames := agui.NewFrameReader(res.Body); ; {
		frame, err := frames.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		ev, _, err := agui.Decode(frame.Data)
		if err != nil {
			log.Fatal(err)
		}
		if r, ok := ev.(agui.ToolCallResult); ok {
			fmt.Println(r.ToolCallID, r.Content.Text)
		}
	}
	// Output: 7 6 words
}

// exampleDispatcher is a dispatcher with a NATS server and a worker behind it.
func exampleDispatcher(ctx context.Context) (*dispatch.Dispatcher, func()) {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "toolfleet")
	check(err)
	server, err := natsd.Start(ctx, natsd.Config{StoreDir: dir})
	check(err)
	nc, err := server.Connect()
	check(err)
	js, err := jetstream.New(nc)
	check(err)

	spec := catalog.Spec{
		Name: "word-count", Description: "Counts words in a text.", Image: "local/word-count:1", Command: []string{"/tool"},
		Parameters: []byte(`{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}`),
	}
	d := &dispatch.Dispatcher{Logger: slog.New(slog.DiscardHandler)}
	d.Catalog, err = catalog.New([]catalog.Spec{spec})
	check(err)
	d.Log, err = results.Open(ctx, js, results.Options{})
	check(err)
	d.Queue, err = queue.Open(ctx, js, queue.Options{})
	check(err)
	d.Blobs, err = blob.Open(ctx, js, blob.Options{})
	check(err)

	running, stop := context.WithCancel(ctx)
	worker := &queue.Server{Queue: d.Queue, Handler: counter{d.Log}, Slots: 1, Log: d.Logger}
	ended := make(chan error)
	go func() { ended <- d.Log.Run(running) }()
	go func() { ended <- worker.Run(running) }()
	return d, func() {
		stop()
		<-ended
		<-ended
		nc.Close()
		server.Shutdown()
		_ = os.RemoveAll(dir)
	}
}

// counter is a worker without a sandbox.
type counter struct{ log *results.Log }

// Handle implements queue.Handler.
func (c counter) Handle(ctx context.Context, d *queue.Delivery) {
	job := d.Job
	ref := results.Ref{Tenant: job.Call.Tenant, Key: job.Call.Key()}
	words := fmt.Sprintf("%d words", len(strings.Fields(job.Call.Arguments)))
	if _, err := c.log.Finish(ctx, ref, job.Call.ToolCallID, call.Result{Content: []agui.Part{agui.Text(words)}}); err != nil {
		log.Fatal(err)
	}
	if err := d.Ack(ctx); err != nil {
		log.Fatal(err)
	}
}
