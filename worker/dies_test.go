package worker

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/results"
)

// TestPain59DiesWorkerAfterItsResult: a worker that is gone between the result and the
// acknowledgement leaves a delivery that comes again. It is acknowledged, the
// tool is not started, and nothing is written.
func TestPain59DiesWorkerAfterItsResult(t *testing.T) {
	for name, change := range map[string]func(*catalog.Job){
		"Pain59Idempotent": idempotent,
		"Pain59Once":       func(*catalog.Job) {},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			job := h.admit("echo ran", change)
			h.run(job)
			end := h.state(job).LastSeq
			for range 4 {
				if err := h.deliver(t.Context(), job); err != nil {
					t.Errorf("a redelivery: %v", err)
				}
			}
			if last := h.state(job).LastSeq; last != end || h.pool.started.Load() != 1 {
				t.Errorf("the log went from %d to %d; %d sandboxes", end, last, h.pool.started.Load())
			}
		})
	}
}

// TestPain60DiesSlowWorkerWakesUpLate: while a worker stood still for longer than its
// lease, another has run the call. What the first one still says is refused by
// the log, dropped, told in its own log and counted; the call has the second
// one's result.
func TestPain60DiesSlowWorkerWakesUpLate(t *testing.T) {
	for name, tt := range map[string]struct{ last, metric string }{
		"Pain60Progress": {"while :; do echo late >&2; sleep 0.05; done", "toolfleet_log_appends_lost_total"},
		"Pain60Result":   {"echo late", "toolfleet_results_dropped_total"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.quiet = time.Hour
			registry := prometheus.NewRegistry()
			h.Metrics = metrics.New(registry)
			dir, err := os.MkdirTemp("", "late")
			if err == nil {
				err = os.Chmod(dir, 0o777) // tools run as another user
			}
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			script := `if mkdir DIR/first 2>/dev/null; then while [ ! -e DIR/wake ]; do sleep 0.02; done; ` + tt.last + `; else echo second; fi`
			job := h.admit(strings.ReplaceAll(script, "DIR", dir), idempotent)
			first := make(chan error, 1)
			go func() { first <- h.deliver(t.Context(), job) }()
			h.until(job, func(e results.Entry) bool { return e.Kind == results.KindStart })
			awaitFile(t, filepath.Join(dir, "first"))

			second := &house{T: t, pool: h.pool, Worker: &Worker{
				Self: results.Worker{ID: "w-second", Incarnation: "1"},
				Log:  h.Log, Blobs: h.Blobs, Sandboxes: h.pool, Alive: h.Alive, Logger: h.Logger,
			}}
			if got := words(t, second.run(job)); got != "second\n" {
				t.Errorf("the second worker's result is %q", got)
			}
			if err := os.WriteFile(filepath.Join(dir, "wake"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := <-first; err != nil {
				t.Errorf("the first worker does not let go: %v", err)
			}
			r := h.result(job)
			if got := words(t, r); got != "second\n" || r.Execution.Attempt != 2 {
				t.Errorf("in the end the result is %q of attempt %d", got, r.Execution.Attempt)
			}
			if n := count(t, registry, tt.metric); n != 1 {
				t.Errorf("%s is %v", tt.metric, n)
			}
		})
	}
}

// awaitFile waits until a tool has made a file.
func awaitFile(t *testing.T, name string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(name); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("there is no %s", name)
		}
	}
}

// count sums a counter over its labels.
func count(t *testing.T, registry *prometheus.Registry, name string) (n float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// TestSkewedClocks: ten minutes between the clocks of dispatcher and worker
// neither end a call before its start nor change how long it may run.
func TestSkewedClocks(t *testing.T) {
	for name, skew := range map[string]time.Duration{"the dispatcher is late": -10 * time.Minute, "the dispatcher is early": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			skewed := func(timeout time.Duration) func(*catalog.Job) {
				return func(j *catalog.Job) {
					j.Admitted = j.Admitted.Add(skew)
					j.Expires, j.Call.Timeout = j.Admitted.Add(time.Minute), timeout
				}
			}
			r := h.run(h.admit("echo ran", skewed(10*time.Second)))
			if wantKind(t, r, ""); r.Execution.QueuedMs < 0 {
				t.Errorf("it waited %d ms", r.Execution.QueuedMs)
			}
			r = h.run(h.admit("sleep 600", skewed(300*time.Millisecond)))
			if wantKind(t, r, call.KindTimeout); r.Execution.RunMs < 300 || r.Execution.RunMs > 60_000 {
				t.Errorf("it ran for %d ms", r.Execution.RunMs)
			}
			// A wait that is over by the server's clock is over.
			late := h.admit("echo ran", func(j *catalog.Job) {
				j.Admitted = j.Admitted.Add(-10 * time.Minute)
				j.Expires = j.Admitted.Add(time.Nanosecond)
			})
			wantKind(t, h.run(late), call.KindExpired)
		})
	}
}

// TestPain37ResultOverTheServersLimit: a result that no message of the server can
// hold is answered all the same, once.
func TestPain37ResultOverTheServersLimit(t *testing.T) {
	h := newHouseOn(t, 128<<10)
	job := h.admit(`head -c 200000 /dev/zero | tr '\0' x`)
	r := h.run(job)
	wantKind(t, r, call.KindInternal)
	if r.Execution == nil || !strings.Contains(words(t, r), "larger than the fleet can deliver") {
		t.Errorf("%+v: %s", r.Execution, words(t, r))
	}
	if err := h.deliver(context.WithoutCancel(t.Context()), job); err != nil {
		t.Errorf("the delivery is not over: %v", err)
	}
}
