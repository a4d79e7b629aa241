package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/sandbox"
)

var specA, specB = sandbox.Spec{Image: "a"}, sandbox.Spec{Image: "b"}

// slowStart makes a start take a second, and fail when its context ends.
func slowStart(ctx context.Context, _ sandbox.Spec) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// honest is an agent that answers pings and runs nothing.
func honest(a *fakeAgent) { a.idle() }

// runPool runs a pool until the test, or stop, ends it.
func runPool(t *testing.T, cfg sandbox.PoolConfig) (p *sandbox.Pool, stop func()) {
	t.Helper()
	p = sandbox.NewPool(cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return p, stop
}

// get takes a sandbox out of the pool.
func get(t *testing.T, p *sandbox.Pool, spec sandbox.Spec, wantWarm bool) *sandbox.Sandbox {
	t.Helper()
	sb, warm, err := p.Get(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if warm != wantWarm {
		t.Errorf("warm is %v", warm)
	}
	return sb
}

// settle lets everything happen that happens within d.
func settle(d time.Duration) { wait(d); synctest.Wait() }

func TestPoolKeepsMinAndThenMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{agent: honest, start: slowStart}
		p, stop := runPool(t, sandbox.PoolConfig{Runtime: rt})
		p.Want(specA, 1, 3)
		settle(10 * time.Second)
		mustBe(t, "stats", p.Stats(), sandbox.PoolStats{Warm: 1})

		sb := get(t, p, specA, true)
		settle(10 * time.Second)
		mustBe(t, "stats after use", p.Stats(), sandbox.PoolStats{Warm: 3, InUse: 1})
		p.Discard(sb)
		p.Discard(sb) // again: nothing happens
		settle(time.Second)
		mustBe(t, "stats after discard", p.Stats(), sandbox.PoolStats{Warm: 3})
		settle(6 * time.Minute)
		mustBe(t, "stats when idle", p.Stats(), sandbox.PoolStats{Warm: 1})

		p.Want(specA, 0, 0)
		settle(time.Second)
		mustBe(t, "stats when unwanted", p.Stats(), sandbox.PoolStats{})
		live, _ := rt.count()
		mustBe(t, "live", live, 0)
		p.Want(specA, 2, 2)
		settle(1500 * time.Millisecond)
		stop()
		live, _ = rt.count()
		mustBe(t, "live after stop", live, 0)
		if _, _, err := p.Get(t.Context(), specA); !errors.Is(err, sandbox.ErrPoolClosed) {
			t.Errorf("Get from a closed pool: %v", err)
		}
	})
}

// TestPoolSkipsTheDead: a sandbox that died, or does not answer, is not handed
// out; and it is replaced without anybody asking.
func TestPoolSkipsTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mute atomic.Bool
		rt := &fakeRuntime{start: slowStart, agent: func(a *fakeAgent) {
			if mute.Load() {
				a.hello()
				a.drain()
			}
			honest(a)
		}}
		p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt})
		p.Want(specA, 2, 2)
		settle(time.Minute)
		for i := range rt.all() {
			i.die()
		}
		synctest.Wait()
		sb := get(t, p, specA, false)
		settle(time.Minute)
		mustBe(t, "stats", p.Stats(), sandbox.PoolStats{Warm: 2, InUse: 1})
		p.Discard(sb)

		// Now ones that live and say nothing.
		mute.Store(true)
		p.Want(specB, 1, 1)
		settle(time.Minute)
		mute.Store(false)
		p.Discard(get(t, p, specB, false))
	})
}

// TestPoolBacksOff: refills that fail do not become a storm, and the pool
// recovers when they succeed again (P14).
func TestPoolBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		fail.Store(true)
		rt := &fakeRuntime{agent: honest, start: func(context.Context, sandbox.Spec) error {
			if fail.Load() {
				return sandbox.ErrImage
			}
			return nil
		}}
		p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt})
		p.Want(specA, 4, 4)
		settle(10 * time.Minute)
		if _, started := rt.count(); started < 5 || started > 40 {
			t.Errorf("%d starts in ten minutes", started)
		}
		if _, _, err := p.Get(t.Context(), specA); !errors.Is(err, sandbox.ErrImage) {
			t.Errorf("got %v", err)
		}
		fail.Store(false)
		settle(3 * time.Minute)
		mustBe(t, "stats", p.Stats(), sandbox.PoolStats{Warm: 4})
	})
}

// TestPoolPutsCallsFirst: no refill begins while a call waits for a cold start,
// and only one at a time while a call runs.
func TestPoolPutsCallsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{agent: honest, start: slowStart}
		p := sandbox.NewPool(sandbox.PoolConfig{Runtime: rt})
		var call sync.WaitGroup
		var sb *sandbox.Sandbox
		call.Go(func() { sb = get(t, p, specB, false) })
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		call.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		p.Want(specA, 4, 4)
		settle(time.Second - time.Millisecond)
		mustBe(t, "starting while a call waits", p.Stats().Starting, 1)
		settle(500 * time.Millisecond)
		mustBe(t, "stats while it runs", p.Stats(), sandbox.PoolStats{Starting: 1, InUse: 1})
		p.Discard(sb)
		synctest.Wait()
		mustBe(t, "starting after it", p.Stats().Starting, 2)
		cancel()
		call.Wait()
		live, _ := rt.count()
		mustBe(t, "live", live, 0)
	})
}

func TestPoolReplacesTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{agent: honest}
		p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt, MaxAge: time.Hour})
		p.Want(specA, 1, 1)
		settle(59 * time.Minute)
		_, started := rt.count()
		mustBe(t, "started", started, 1)
		settle(2 * time.Minute)
		live, started := rt.count()
		mustBe(t, "live and started", [2]int{live, started}, [2]int{1, 2})
	})
}

// TestPoolDiscardAfterStop: a call that outlives the pool still gets rid of its
// sandbox.
func TestPoolDiscardAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{agent: honest}
		p, stop := runPool(t, sandbox.PoolConfig{Runtime: rt})
		sb := get(t, p, specA, false)
		stop()
		live, _ := rt.count()
		mustBe(t, "live in use", live, 1)
		p.Discard(sb)
		live, _ = rt.count()
		mustBe(t, "live", live, 0)
		mustBe(t, "stats", p.Stats(), sandbox.PoolStats{})
	})
}

func TestPoolTellsOfStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []sandbox.PoolStart
		rt := &fakeRuntime{agent: honest, start: slowStart}
		p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt, OnStart: func(s sandbox.PoolStart) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, s)
		}})
		p.Want(specA, 1, 1)
		settle(10 * time.Second)
		p.Discard(get(t, p, specB, false))
		mustBe(t, "starts", told, []sandbox.PoolStart{
			{Spec: specA, Refill: true, Took: time.Second},
			{Spec: specB, Took: time.Second},
		})
	})
}

// TestPoolNeverExceeds: whatever is wanted, taken, discarded and dies, there are
// never more warm sandboxes of a spec than its max, nor more than MaxWarm in
// all, a sandbox is handed out once and has the spec that was asked for, and in
// the end nothing is left (P15, P17).
func TestPoolNeverExceeds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ops := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) poolOp {
			return poolOp{
				what: rapid.SampledFrom([]string{"want", "get", "discard", "die", "wait"}).Draw(r, "what"),
				spec: rapid.IntRange(0, 2).Draw(r, "spec"),
				n:    rapid.IntRange(0, 4).Draw(r, "n"),
			}
		}), 0, 60).Draw(r, "ops")
		failing := rapid.Bool().Draw(r, "failing")
		var fault error
		synctest.Test(t, func(t *testing.T) { fault = playPool(t, ops, failing) })
		if fault != nil {
			r.Fatal(fault)
		}
	})
}

type poolOp struct {
	what    string
	spec, n int
}

const poolMaxWarm = 5

// playPool plays ops against a pool and checks the law after each.
func playPool(t *testing.T, ops []poolOp, failing bool) error {
	starts := 0
	rt := &fakeRuntime{agent: honest}
	rt.start = func(ctx context.Context, spec sandbox.Spec) error {
		rt.mu.Lock()
		starts++
		fail := failing && starts%3 == 0
		rt.mu.Unlock()
		if fail {
			return errFake
		}
		return slowStart(ctx, spec)
	}
	p, stop := runPool(t, sandbox.PoolConfig{Runtime: rt, MaxWarm: poolMaxWarm, Parallel: 3})
	maxOf := make(map[sandbox.Spec]int)
	var inUse []held
	for i, op := range ops {
		spec := sandbox.Spec{Image: fmt.Sprint(op.spec)}
		switch op.what {
		case "want":
			p.Want(spec, op.n/2, op.n)
			maxOf[spec] = op.n
		case "get":
			if sb, _, err := p.Get(t.Context(), spec); err == nil {
				inUse = append(inUse, held{sb, spec})
				if !rightSpec(rt, inUse[len(inUse)-1]) {
					return fmt.Errorf("step %d: a sandbox of another spec", i)
				}
			}
		case "discard":
			if len(inUse) > 0 {
				p.Discard(inUse[0].sb)
				inUse = inUse[1:]
			}
		case "die":
			for victim := range rt.all() {
				victim.die()
				break
			}
		case "wait":
			wait(time.Duration(op.n) * 700 * time.Millisecond)
		}
		synctest.Wait()
		if err := poolLaw(p, rt, maxOf, inUse); err != nil {
			return fmt.Errorf("after step %d, %v: %w", i, op, err)
		}
	}
	stop()
	for _, h := range inUse {
		p.Discard(h.sb)
	}
	if live, _ := rt.count(); live != 0 {
		return fmt.Errorf("%d sandboxes are left", live)
	}
	return nil
}

// poolLaw checks what has to be true of a pool at rest.
func poolLaw(p *sandbox.Pool, rt *fakeRuntime, maxOf map[sandbox.Spec]int, inUse []held) error {
	st := p.Stats()
	if st.InUse != len(inUse) {
		return fmt.Errorf("%d in use, want %d", st.InUse, len(inUse))
	}
	if st.Warm+st.Starting > poolMaxWarm+3 || st.Warm > poolMaxWarm {
		return fmt.Errorf("%d warm and %d starting, of %d allowed", st.Warm, st.Starting, poolMaxWarm)
	}
	for spec, n := range perSpec(rt, inUse) {
		if n > maxOf[spec] {
			return fmt.Errorf("%d warm of %s, want at most %d", n, spec.Image, maxOf[spec])
		}
	}
	return nil
}

// perSpec counts the live sandboxes of each spec that are not in use.
func perSpec(rt *fakeRuntime, inUse []held) map[sandbox.Spec]int {
	n := make(map[sandbox.Spec]int)
	for i, spec := range rt.all() {
		if !slices.ContainsFunc(inUse, func(h held) bool { return h.sb.ID() == i.id }) {
			n[spec]++
		}
	}
	return n
}

// held is a sandbox that the pool handed out for spec.
type held struct {
	sb   *sandbox.Sandbox
	spec sandbox.Spec
}

// rightSpec reports whether h is a sandbox of the spec that was asked for.
func rightSpec(rt *fakeRuntime, h held) bool {
	for i, spec := range rt.all() {
		if i.id == h.sb.ID() {
			return spec == h.spec
		}
	}
	return true // it died
}
