package health_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/internal/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a monitor until the test ends, inside a bubble with a clock of its own.
func run(t *testing.T, log *strings.Builder, checks ...health.Check) (*health.Monitor, func()) {
	t.Helper()
	m := health.NewMonitor(slog.New(slog.NewTextHandler(log, nil)), checks...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return m, func() { cancel(); <-done }
}

// pass lets time pass in a bubble.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func page(t *testing.T, report func() health.Report) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	health.Page(report).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	return w.Code, w.Body.String()
}

// A check that fails is named with what to do, is mended without a restart, and
// either is logged once.
func TestAFailureIsNamedAndMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		var log strings.Builder
		m, stop := run(t, &log,
			health.Check{Name: "nats", Ask: func(context.Context) error { return nil }},
			health.Check{Name: "disk", Ask: func(context.Context) error {
				if full.Load() {
					return errors.New("12 MiB are left;\nmake room")
				}
				return nil
			}})
		settle := func() { pass(10 * time.Second) }
		settle()
		if code, body := page(t, m.Report); code != 200 || body != "[+]nats ok\n[+]disk ok\nok\n" {
			t.Errorf("%d %q", code, body)
		}
		full.Store(true)
		settle()
		if code, body := page(t, m.Report); code != 503 || body != "[+]nats ok\n[-]disk failed: 12 MiB are left; make room\nnot ready\n" {
			t.Errorf("%d %q", code, body)
		}
		full.Store(false)
		settle()
		if err := m.Report().Err(); err != nil {
			t.Error(err)
		}
		stop()
		if n, mended := strings.Count(log.String(), "until this is mended"), strings.Count(log.String(), "msg=mended check=disk"); n != 1 || mended != 1 {
			t.Errorf("the log:\n%s", &log)
		}
	})
}

// P44: what is asked may hang, with its deadline or for good. The page answers,
// and the other checks go on.
func TestPain44WhatHangsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var asked atomic.Int32
		release := make(chan struct{})
		m, stop := run(t, &log,
			health.Check{Name: "nats", Ask: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
			health.Check{Name: "disk", Ask: func(context.Context) error { <-release; return nil }},
			health.Check{Name: "other", Ask: func(context.Context) error { asked.Add(1); return nil }})
		pass(time.Minute)
		before := time.Now()
		report := m.Report()
		if took := time.Since(before); took != 0 {
			t.Errorf("the report took %s", took)
		}
		if want := (health.Report{{"nats", "context deadline exceeded"}, {"disk", "no answer for 1m0s"}, {Name: "other"}}); len(report) != 3 ||
			report[0] != want[0] || report[1] != want[1] || report[2] != want[2] {
			t.Errorf("got %+v", report)
		}
		if n := asked.Load(); n < 20 {
			t.Errorf("the third check was asked %d times in a minute", n)
		}
		close(release)
		stop()
	})
}

// A process that ends says nothing of what it was asking then.
func TestTheEndIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		_, stop := run(t, &log, health.Check{Name: "nats", Ask: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }})
		pass(time.Second)
		stop()
		if log.Len() > 0 {
			t.Errorf("the log:\n%s", &log)
		}
	})
}
