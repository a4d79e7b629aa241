package otlp_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/internal/tracing/otlp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// safe is a log that is read while it is written.
type safe struct {
	mu sync.Mutex
	b  strings.Builder // guarded by mu
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.b.String(), text)
}

// A collector that refuses everything is told of once, holds no span up, and does
// not hold up the end.
func TestACollectorThatRefuses(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:forcetypeassert // what it is
	defer s.Close()
	var log safe
	var dropped atomic.Int64
	tracer, stop, err := otlp.Open(t.Context(), otlp.Config{
		Endpoint: s.URL, Ratio: 1, Service: "test", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Dropped: func(n int) { dropped.Add(int64(n)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	const spans = 20_000 // more than fit into the queue
	for range spans {
		tracer.Start("", "x", 0, time.Now()).End()
	}
	stop()
	if n := dropped.Load(); n != spans {
		t.Errorf("%d of %d lost spans are counted", n, spans)
	}
	if n := log.count("takes no traces"); n != 1 || asked.Load() < 2 {
		t.Errorf("told %d times of %d refusals", n, asked.Load())
	}
}

// A collector that takes a connection and never answers holds up the end for a bounded
// time: then the send is cut, every span of it is counted, and no goroutine is left, which
// TestMain sees.
func TestACollectorThatHangs(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server see the client go
		<-r.Context().Done()
	}))
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:forcetypeassert // what it is
	defer s.Close()
	var (
		log     safe
		dropped atomic.Int64
	)
	tracer, stop, err := otlp.Open(t.Context(), otlp.Config{
		Endpoint: s.URL, Ratio: 1, Service: "test", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Dropped: func(n int) { dropped.Add(int64(n)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	const spans = 3000
	for range spans {
		tracer.Start("", "x", 0, time.Now()).End()
	}
	stop()
	if n := dropped.Load(); n != spans || log.count("could not be sent") != 1 {
		t.Errorf("%d of %d lost spans are counted, told %d times", n, spans, log.count("could not be sent"))
	}
}

// An endpoint is the collector's, with a path before the protocol's or without one;
// what the operator says of the process goes along.
func TestWhereSpansGo(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=canary-4d1")
	for path, want := range map[string]string{"": "/v1/traces", "/": "/v1/traces", "/base": "/base/v1/traces", "/base/": "/base/v1/traces", "/base/v1/traces": "/base/v1/traces"} {
		var asked, body string
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			raw, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			asked, body = r.URL.Path, string(raw)
		}))
		tracer, stop, err := otlp.Open(t.Context(), otlp.Config{Endpoint: s.URL + path, Ratio: 1, Service: "test", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		tracer.Start("", "x", 0, time.Now()).End()
		stop()
		s.Close()
		if asked != want || !strings.Contains(body, "canary-4d1") {
			t.Errorf("%q: spans went to %q, want %q, with the environment's attributes", path, asked, want)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:forcetypeassert // what it is
}

func TestEndpoints(t *testing.T) {
	for _, bad := range []otlp.Config{{Endpoint: "collector:4318"}, {Endpoint: "ftp://x"}, {Endpoint: "http://"}, {Endpoint: "http://x", Ratio: 2}} {
		if _, _, err := otlp.Open(t.Context(), bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
