package sandbox_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// TestPoolFollowsItsCalls: min without calls, then what the calls needed at
// once, never more than max, and min again when they have stopped.
func TestPoolFollowsItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{agent: honest, start: slowStart}
		p, stop := runPool(t, sandbox.PoolConfig{Runtime: rt})
		p.Want(specA, 1, 3)
		settle(10 * time.Second)
		mustBe(t, "stats", p.Stats(), sandbox.PoolStats{Warm: 1})

		sb := get(t, p, specA, true)
		settle(10 * time.Second)
		mustBe(t, "stats after use", p.Stats(), sandbox.PoolStats{Warm: 1, InUse: 1})
		p.Release(sb)
		p.Release(sb) // again: nothing happens
		settle(time.Second)
		mustBe(t, "stats after release", p.Stats(), sandbox.PoolStats{Warm: 1})
		burst(t, p, specA, 2)
		settle(10 * time.Second)
		mustBe(t, "stats after a burst", p.Stats(), sandbox.PoolStats{Warm: 2})
		burst(t, p, specA, 9)
		settle(10 * time.Second)
		mustBe(t, "stats after a large burst", p.Stats(), sandbox.PoolStats{Warm: 3})
		mustBe(t, "level", p.Levels(), map[sandbox.Kind]sandbox.Level{{Runtime: "fake", Isolation: "container"}: {Warm: 3, Target: 3}})
		settle(2 * time.Minute)
		mustBe(t, "stats two minutes later", p.Stats(), sandbox.PoolStats{Warm: 3})
		settle(4 * time.Minute)
		mustBe(t, "stats when idle", p.Stats(), sandbox.PoolStats{Warm: 1})

		p.Want(specA, 0, 0)
		settle(time.Second)
		mustBe(t, "stats when unwanted", p.Stats(), sandbox.PoolStats{})
		mustBe(t, "level when unwanted", p.Levels(), map[sandbox.Kind]sandbox.Level{{Runtime: "fake", Isolation: "container"}: {}})
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

// burst runs n calls of spec at once, which take a millisecond.
func burst(t *testing.T, p *sandbox.Pool, spec sandbox.Spec, n int) (hits int) {
	t.Helper()
	var calls sync.WaitGroup
	var hit atomic.Int32
	for range n {
		calls.Go(func() {
			sb, warm, err := p.Get(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			if warm {
				hit.Add(1)
			}
			wait(time.Millisecond)
			p.Release(sb)
		})
	}
	calls.Wait()
	return int(hit.Load())
}

// TestPoolMeetsTheRate: calls that come steadily find a sandbox, with about as
// many warm as come in the time of a refill and not the most there may be; and
// bursts that come again and again find one each.
func TestPoolMeetsTheRate(t *testing.T) {
	t.Run("Steady", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := &fakeRuntime{agent: honest, start: slowStart}
			p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt, Parallel: 16})
			p.Want(specA, 0, 40)
			hits := 0
			for i := range 300 { // four a second, of refills that take one
				if n := burst(t, p, specA, 1); i >= 60 {
					hits += n
				}
				wait(250 * time.Millisecond)
			}
			mustBe(t, "hits of 240", hits, 240)
			if n := p.Levels()[sandbox.Kind{Runtime: "fake", Isolation: "container"}].Target; n < 4 || n > 5 {
				t.Errorf("target is %d, want about 4", n)
			}
		})
	})
	t.Run("Bursts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := &fakeRuntime{agent: honest, start: slowStart}
			p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt})
			p.Want(specA, 0, 40)
			burst(t, p, specA, 6)
			for range 10 {
				wait(2 * time.Minute)
				mustBe(t, "hits", burst(t, p, specA, 6), 6)
			}
			_, started := rt.count()
			settle(10 * time.Second)
			if _, now := rt.count(); now > started+6 {
				t.Errorf("%d starts after the last burst of 6", now-started)
			}
			mustBe(t, "stats", p.Stats(), sandbox.PoolStats{Warm: 6})
		})
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
		p.Release(sb)

		// Now ones that live and say nothing.
		mute.Store(true)
		p.Want(specB, 1, 1)
		settle(time.Minute)
		mute.Store(false)
		p.Release(get(t, p, specB, false))
	})
}

// TestPain14RefillsBackOff: refills that fail do not become a storm, the pauses
// are seen to grow, and the pool recovers when they succeed again.
func TestPain14RefillsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		fail.Store(true)
		rt := &fakeRuntime{agent: honest, start: func(context.Context, sandbox.Spec) error {
			if fail.Load() {
				return sandbox.ErrImage
			}
			return nil
		}}
		p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt, Parallel: 2})
		p.Want(specA, 4, 4)
		settle(time.Minute)
		_, first := rt.count()
		settle(9 * time.Minute)
		if _, started := rt.count(); started < 8 || started > 40 || first < (started-first)/9 {
			t.Errorf("%d starts in the first minute, %d in ten", first, started)
		}
		if _, _, err := p.Get(t.Context(), specA); !errors.Is(err, sandbox.ErrImage) {
			t.Errorf("got %v", err)
		}
		fail.Store(false)
		settle(3 * time.Minute)
		mustBe(t, "stats", p.Stats(), sandbox.PoolStats{Warm: 4})
	})
}

// TestPoolPutsCallsFirst: no refill begins while a call waits for a cold start
// of another spec, and fewer at a time while a call runs.
func TestPoolPutsCallsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{agent: honest, start: slowStart}
		p := sandbox.NewPool(sandbox.PoolConfig{Runtime: rt, Parallel: 2})
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
		p.Release(sb)
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

// TestPoolReleaseAfterStop: a call that outlives the pool still gets rid of its
// sandbox.
func TestPoolReleaseAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{agent: honest}
		p, stop := runPool(t, sandbox.PoolConfig{Runtime: rt})
		sb := get(t, p, specA, false)
		stop()
		live, _ := rt.count()
		mustBe(t, "live in use", live, 1)
		p.Release(sb)
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
		p.Release(get(t, p, specB, false))
		mustBe(t, "starts", told, []sandbox.PoolStart{
			{Spec: specA, Refill: true, Took: time.Second},
			{Spec: specB, Took: time.Second},
		})
	})
}
