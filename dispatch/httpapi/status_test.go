package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
	"github.com/toolfleet/toolfleet/queue"
)

// fleetStatus is the answer as a client reads it.
type fleetStatus struct {
	Problems, Notices, Unknown []string
	Dispatchers                []struct {
		ID                         string
		Ready, Schedules, Answered bool
	}
	Workers []struct {
		ID, State, Problem                 string
		Slots, Warm, WarmTarget, Sandboxes int
	}
	Queues      []struct{ Class string }
	DeadLetters struct{ Count int }
}

// parts are registers of these.
func parts(dispatchers []queue.DispatcherInfo, workers []queue.WorkerInfo) func(*httpapi.Config) {
	return func(c *httpapi.Config) {
		c.ID = "d1"
		c.Dispatchers = func(context.Context) ([]queue.DispatcherInfo, error) { return dispatchers, nil }
		c.Workers = func(context.Context) ([]queue.WorkerInfo, error) { return workers, nil }
	}
}

// leads makes d1 the one that schedules, until the test ends.
func leads(t *testing.T, f *dispatchtest.Fleet) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	elected, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- f.Queue.Lead(ctx, "d1", func(ctx context.Context) { close(elected); <-ctx.Done() })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-elected:
	case err := <-done:
		t.Fatal(err)
	}
}

func TestStatusOfAHealthyFleet(t *testing.T) {
	f := dispatchtest.New(t)
	leads(t, f)
	d := open(t, f, parts(
		[]queue.DispatcherInfo{{ID: "d2", Version: "v1"}, {ID: "d1", Version: "v1"}},
		[]queue.WorkerInfo{
			{ID: "w2", Class: "gpu", Version: "v1", Slots: 1, Draining: true},
			{ID: "w1", Class: "default", Version: "v1", Slots: 4, Warm: 1, WarmTarget: 2, Sandboxes: 3},
		}))
	a := d.do("GET", "/v1/status", "")
	s := decode[fleetStatus](t, a.Body)
	if a.Status != 200 || len(s.Problems)+len(s.Unknown) > 0 || len(s.Dispatchers) != 2 || len(s.Workers) != 2 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if one := s.Dispatchers[0]; one.ID != "d1" || !one.Ready || !one.Schedules || !one.Answered {
		t.Errorf("%+v", s.Dispatchers)
	}
	if other := s.Dispatchers[1]; !other.Ready || other.Schedules || other.Answered {
		t.Errorf("%+v", s.Dispatchers)
	}
	if w := s.Workers[0]; w.ID != "w1" || w.State != "ready" || w.Slots != 4 || w.Warm != 1 || w.WarmTarget != 2 || w.Sandboxes != 3 {
		t.Errorf("%+v", w)
	}
	if w := s.Workers[1]; w.State != "draining" || len(s.Notices) != 1 {
		t.Errorf("%+v, %q", w, s.Notices)
	}
	if !slices.ContainsFunc(s.Queues, func(q struct{ Class string }) bool { return q.Class == "gpu" }) {
		t.Errorf("the class of a worker has no queue: %+v", s.Queues)
	}
}

// What is wrong is said in sentences, each with its part.
func TestStatusNamesWhatIsWrong(t *testing.T) {
	d := open(t, dispatchtest.New(t), parts(
		[]queue.DispatcherInfo{{ID: "d1", Version: "v1"}, {ID: "d2", Version: "v2", Problem: "nats: away"}},
		[]queue.WorkerInfo{{ID: "w1", Class: "default", Version: "v1", Problem: "disk: 3 MiB left; make room"}, {ID: "w2", Class: "a class that is none"}},
	))
	s := decode[fleetStatus](t, d.do("GET", "/v1/status", "").Body)
	said := strings.Join(s.Problems, "\n")
	for _, want := range []string{"Dispatcher d2 is not ready: nats: away.", "No dispatcher schedules", "Worker w1 takes no calls: disk: 3 MiB left; make room."} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	if len(s.Problems) != 3 || len(s.Notices) != 1 || !strings.Contains(s.Notices[0], "Versions differ, as in an upgrade: 1 of unknown, 1 of v2, 2 of v1.") {
		t.Errorf("%q %q", s.Problems, s.Notices)
	}
}

// Without a NATS server the answer comes in time, and says so in one sentence.
func TestStatusWithoutNATS(t *testing.T) {
	f := dispatchtest.Alone(t, dispatchtest.Spec("echo", nil))
	d := open(t, f, func(c *httpapi.Config) {
		away := errors.New("no answer")
		c.Dispatchers = func(context.Context) ([]queue.DispatcherInfo, error) { return nil, away }
		c.Workers = func(context.Context) ([]queue.WorkerInfo, error) { return nil, away }
	})
	f.NATS.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	a := d.send(d.request("GET", "/v1/status", "").WithContext(ctx))
	s := decode[fleetStatus](t, a.Body)
	if a.Status != 200 || len(s.Unknown) != 5 || len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0], "No NATS server answers") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// A crowd that watches costs the NATS servers what one does.
func TestStatusIsLookedUpOnceForAll(t *testing.T) {
	var asked atomic.Int32
	d := open(t, dispatchtest.New(t), func(c *httpapi.Config) {
		c.Dispatchers = func(context.Context) ([]queue.DispatcherInfo, error) { return nil, nil }
		c.Workers = func(context.Context) ([]queue.WorkerInfo, error) { asked.Add(1); return nil, nil }
	})
	began := time.Now()
	for range 50 {
		if a := d.do("GET", "/v1/status", ""); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	if most := 1 + int32(time.Since(began)/time.Second); asked.Load() > most {
		t.Errorf("the register was read %d times, %d would do", asked.Load(), most)
	}
}

func TestStatusIsForOperators(t *testing.T) {
	d := open(t, dispatchtest.New(t), parts(nil, nil), withTokens(t, "acme "+acme, "ops "+other+" operator"))
	d.wantProblem(d.do("GET", "/v1/status", ""), http.StatusUnauthorized)
	d.wantProblem(d.do("GET", "/v1/status", "", "Authorization: Bearer "+acme), http.StatusForbidden)
	if a := d.do("GET", "/v1/status", "", "Authorization: Bearer "+other); a.Status != 200 {
		t.Errorf("an operator: %d %s", a.Status, a.Body)
	}
}
