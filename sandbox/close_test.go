package sandbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
)

// TestCloseWhileInUse: a sandbox that is closed while it serves a call, and is
// asked whether it lives, ends them both.
func TestCloseWhileInUse(t *testing.T) {
	rt := &fakeRuntime{agent: started((*fakeAgent).linger)}
	for range 300 {
		sb, err := sandbox.Open(t.Context(), rt, "fake-1", sandbox.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var users sync.WaitGroup
		users.Go(func() { _, _ = sb.Run(ctx, prog, sandbox.Sink{}) })
		users.Go(func() { _ = sb.Check(ctx) })
		users.Go(cancel)
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
		users.Wait()
	}
}

// TestPain82CleanupHasItsOwnContext: a call that is cancelled, and a pool that
// was stopped, kill and remove their sandboxes under contexts that are neither,
// and that end.
func TestPain82CleanupHasItsOwnContext(t *testing.T) {
	seen := make(chan string, 16)
	rt := &fakeRuntime{agent: started((*fakeAgent).linger), cleanup: func(what string, ctx context.Context) {
		if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
			t.Errorf("%s under a context with error %v, bounded: %v", what, ctx.Err(), bounded)
		}
		seen <- what
	}}
	p, stop := runPool(t, sandbox.PoolConfig{Runtime: rt})
	sb := get(t, p, sandbox.Spec{}, false)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _, _ = sb.Run(ctx, prog, sandbox.Sink{}) })
	cancel()
	running.Wait()
	stop()
	p.Release(sb)
	close(seen)
	var got []string
	for what := range seen {
		got = append(got, what)
	}
	if !slices.Contains(got, "close") {
		t.Errorf("clean-up was %q, and never closed", got)
	}
}
