package faults

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
	"github.com/toolfleet/toolfleet/internal/health"
)

// TestDiesNATSAtTheDoors: while the server is away the door answers 503 with
// Retry-After and is not ready, an open stream stays open, and when the server
// is back the stream goes on to its end.
func TestDiesNATSAtTheDoors(t *testing.T) {
	f := newFleet(t, t.TempDir())
	release := make(chan struct{})
	f.boxes.hold = func(string) <-chan struct{} { return release }
	d := f.dispatcher()
	f.worker(2, time.Minute)
	url := f.door(d)

	stream := request(t, http.MethodPost, url+"/v1/calls", `{"tool":"once","arguments":{}}`, "text/event-stream")
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	until(t, lines, "RUN_STARTED")
	<-f.boxes.started
	f.down()
	for _, page := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodGet, "/readyz", "", http.StatusServiceUnavailable},
		{http.MethodPost, "/v1/calls", `{"tool":"again","arguments":{}}`, http.StatusServiceUnavailable},
		{http.MethodGet, "/healthz", "", http.StatusOK},
	} {
		r := request(t, page.method, url+page.path, page.body, "application/json")
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != page.status || page.method == http.MethodPost && r.Header.Get("Retry-After") == "" {
			t.Errorf("%s %s: %d, retry after %q: %s", page.method, page.path, r.StatusCode, r.Header.Get("Retry-After"), text)
		}
	}
	close(release)
	f.up()
	until(t, lines, "TOOL_CALL_RESULT")
	until(t, lines, "RUN_FINISHED")
}

// door serves a dispatcher over HTTP until the test ends.
func (f *fleet) door(d *part) (url string) {
	f.t.Helper()
	c, err := catalog.New(tools())
	if err != nil {
		f.t.Fatal(err)
	}
	s, err := httpapi.New(httpapi.Config{
		Addr: "127.0.0.1:0", Dispatcher: d.Dispatcher, Tools: c, Drain: time.Second, Logger: slog.New(slog.DiscardHandler),
		Health: func() health.Report {
			var nats error
			if !d.nc.IsConnected() {
				nats = io.ErrUnexpectedEOF
			}
			return health.Report{}.With("nats", nats)
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	f.t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	})
	return s.URL()
}

func request(t *testing.T, method, url, body, accept string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// until reads a stream to the event of a type.
func until(t *testing.T, lines *bufio.Scanner, event string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"type":"`+event+`"`) {
			return
		}
	}
	t.Fatalf("the stream ended without %s: %v", event, lines.Err())
}
