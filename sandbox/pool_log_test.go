package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// TestPain14RefillsAreToldOnce: what keeps a warm sandbox from being started is
// told when it begins and when it is another, and its end is told as well.
func TestPain14RefillsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var why atomic.Pointer[error]
		fail := func(err error) { why.Store(&err) }
		fail(errors.New("its registry is away"))
		var log bytes.Buffer
		rt := &fakeRuntime{agent: honest, start: func(context.Context, sandbox.Spec) error { return *why.Load() }}
		p, stop := runPool(t, sandbox.PoolConfig{Runtime: rt, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		p.Want(specA, 2, 2)
		settle(10 * time.Minute)
		fail(errors.New("its registry refuses"))
		settle(10 * time.Minute)
		fail(nil)
		settle(10 * time.Minute)
		fail(errors.New("its registry is away"))
		p.Release(get(t, p, specA, true))
		settle(10 * time.Minute)
		stop()
		var got []string
		for line := range strings.Lines(log.String()) {
			switch {
			case strings.Contains(line, "registry is away"):
				got = append(got, "away")
			case strings.Contains(line, "registry refuses"):
				got = append(got, "refuses")
			case strings.Contains(line, "are started again"):
				got = append(got, "again")
			}
		}
		mustBe(t, "told", strings.Join(got, " "), "away refuses again away")
	})
}
