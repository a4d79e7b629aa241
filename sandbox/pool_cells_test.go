package sandbox_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

var (
	cellA = sandbox.Spec{Image: "a", Isolation: "cell", Owner: "t/sum"}
	cellB = sandbox.Spec{Image: "a", Isolation: "cell", Owner: "u/sum"}
)

// countPings is an agent that counts what it is asked.
func countPings(pings *atomic.Int32) func(a *fakeAgent) {
	return func(a *fakeAgent) {
		a.hello()
		for {
			f, err := a.Next()
			if err != nil {
				return
			}
			if f.Kind == wire.KindPing {
				pings.Add(1)
				_ = a.Frame(wire.KindPong, f.Stream, f.Payload)
			}
		}
	}
}

// TestPoolReusesCells: a container of cells comes back, is handed out again at
// once and unasked, and after a while only when its agent answers; never to
// another owner, never when it is too old, nor when it has died.
func TestPoolReusesCells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pings atomic.Int32
		rt := &fakeRuntime{agent: countPings(&pings), start: slowStart}
		p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt, MaxAge: time.Minute})
		p.Want(cellA, 0, 2)
		p.Want(cellB, 0, 2)

		first := get(t, p, cellA, false)
		p.Release(first)
		p.Release(first) // again: nothing happens
		mustBe(t, "stats after release", p.Stats(), sandbox.PoolStats{Warm: 1})
		if again := get(t, p, cellA, true); again != first {
			t.Error("another container than the one that came back")
		}
		p.Release(first)
		mustBe(t, "pings at once", pings.Load(), 0)
		p.Release(get(t, p, cellB, false))

		wait(5 * time.Second)
		if again := get(t, p, cellA, true); again != first {
			t.Error("another container than the one that came back")
		}
		mustBe(t, "pings after a while", pings.Load(), 1)
		wait(time.Minute + 300*time.Millisecond)
		p.Release(first)
		settle(time.Millisecond)
		p.Release(get(t, p, cellA, false)) // the first grew too old with its call

		for i := range rt.all() {
			i.die()
		}
		synctest.Wait()
		last := get(t, p, cellA, false)
		for i := range rt.all() {
			i.die()
		}
		synctest.Wait()
		p.Release(last)
		settle(time.Millisecond)
		mustBe(t, "stats in the end", p.Stats(), sandbox.PoolStats{Starting: 2}) // for those that died
	})
}

// TestPain19PoolNeverReusesContainers: what is isolated by its container is never used again;
// nor are cells that nobody wants any more, that are
// more than are needed, or that the pool has no room for. The pool is not run,
// so that nothing but the release can remove them.
func TestPain19PoolNeverReusesContainers(t *testing.T) {
	for _, c := range []struct {
		name  string
		spec  sandbox.Spec
		calls int // at once
		then  func(p *sandbox.Pool)
		want  int // warm in the end
	}{
		{"Nothing", cellA, 2, func(*sandbox.Pool) {}, 2},
		{"Containers", specA, 2, func(*sandbox.Pool) {}, 0},
		{"Unwanted", cellA, 2, func(p *sandbox.Pool) { p.Want(cellA, 0, 0) }, 0},
		{"TooMany", cellA, 4, func(*sandbox.Pool) { wait(11 * time.Second) }, 2},
		{"NoRoom", cellA, 2, func(p *sandbox.Pool) {
			p.Want(cellB, 0, 1)
			sb, _, err := p.Get(context.Background(), cellB)
			if err == nil {
				p.Release(sb)
			}
		}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := &fakeRuntime{agent: honest}
				p := sandbox.NewPool(sandbox.PoolConfig{Runtime: rt, MaxWarm: 2})
				p.Want(c.spec, 0, 2)
				var out []*sandbox.Sandbox
				for range c.calls {
					out = append(out, get(t, p, c.spec, false))
				}
				c.then(p)
				for _, sb := range out {
					p.Release(sb)
				}
				synctest.Wait()
				mustBe(t, "stats", p.Stats(), sandbox.PoolStats{Warm: c.want})
				live, _ := rt.count()
				mustBe(t, "live", live, c.want)
				for _, spec := range []sandbox.Spec{cellA, cellB} {
					p.Want(spec, 0, 0)
				}
				synctest.Wait()
			})
		})
	}
}

// TestPain17NoCallGetsAnOldSpec: when a tool changes, nothing of the old spec
// stays or comes back: what is warm, what is being started, and what is out.
func TestPain17NoCallGetsAnOldSpec(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *sandbox.Spec)
	}{
		{"Image", func(s *sandbox.Spec) { s.Image = "a:2" }},
		{"Limits", func(s *sandbox.Spec) { s.Limits.Pids = 9 }},
		{"Isolation", func(s *sandbox.Spec) { s.Isolation, s.Owner = "container", "" }},
		{"Runtime", func(s *sandbox.Spec) { s.Runtime = "other" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old, now := cellA, cellA
				c.change(&now)
				rt := &fakeRuntime{agent: honest, start: slowStart}
				p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt, Parallel: 2})
				p.Want(old, 2, 3)
				settle(time.Minute)
				p.Want(old, 3, 3)
				out := get(t, p, old, true)
				settle(100 * time.Millisecond)
				mustBe(t, "stats before", p.Stats(), sandbox.PoolStats{Warm: 1, InUse: 1, Starting: 1})
				p.Want(old, 0, 0)
				p.Want(now, 1, 1)
				p.Release(out)
				settle(time.Minute)
				p.Release(get(t, p, now, true))
				settle(time.Minute)
				for _, spec := range rt.all() {
					if spec != now {
						t.Errorf("%+v is still there", spec)
					}
				}
			})
		})
	}
}

// TestPoolKeepsCellsForCallsAtOnce: calls at once need a container each, which
// serve the next ones, also beyond max while there are so many; what is above
// max goes soon after, and the rest when no calls have come for a while.
func TestPoolKeepsCellsForCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{agent: honest, start: slowStart}
		p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt})
		p.Want(cellA, 1, 3)
		settle(10 * time.Second)
		mustBe(t, "stats", p.Stats(), sandbox.PoolStats{Warm: 1})
		var slots sync.WaitGroup
		for range 6 {
			slots.Go(func() {
				for range 100 {
					burst(t, p, cellA, 1)
				}
			})
		}
		slots.Wait()
		_, started := rt.count()
		mustBe(t, "started for 600 calls", started, 6)
		mustBe(t, "stats after the calls", p.Stats(), sandbox.PoolStats{Warm: 6})
		settle(11 * time.Second)
		mustBe(t, "stats soon after", p.Stats(), sandbox.PoolStats{Warm: 3})
		settle(6 * time.Minute)
		mustBe(t, "stats when idle", p.Stats(), sandbox.PoolStats{Warm: 1})
	})
}
