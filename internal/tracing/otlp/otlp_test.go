package otlp_test

import (
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
	tracer, stop, err := otlp.Open(t.Context(), otlp.Config{Endpoint: s.URL, Ratio: 1, Service: "test", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for range 20_000 { // more than fit into the queue
		tracer.Start("", "x", 0, time.Now()).End()
	}
	stop()
	if n := log.count("takes no traces"); n != 1 || asked.Load() < 2 {
		t.Errorf("told %d times of %d refusals", n, asked.Load())
	}
}

func TestEndpoints(t *testing.T) {
	for _, bad := range []otlp.Config{{Endpoint: "collector:4318"}, {Endpoint: "ftp://x"}, {Endpoint: "http://"}, {Endpoint: "http://x", Ratio: 2}} {
		if _, _, err := otlp.Open(t.Context(), bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
