package sandbox_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// TestPoolRefillsInGaps: one call after the other finds the pool still, and a
// pause fills it.
func TestPoolRefillsInGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{agent: honest, start: slowStart}
		p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt})
		p.Want(specA, 8, 8)
		settle(time.Minute)
		for range 4 {
			p.Release(get(t, p, specA, true))
			settle(10 * time.Millisecond)
			mustBe(t, "starting between calls", p.Stats().Starting, 0)
		}
		settle(15 * time.Millisecond)
		mustBe(t, "starting in a gap", p.Stats().Starting > 0, true)
	})
}

// TestPoolDoesNotWaitForGaps: when calls come so quickly that the shelf is
// running empty, and when they never pause.
func TestPoolDoesNotWaitForGaps(t *testing.T) {
	t.Run("RunningOut", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := &fakeRuntime{agent: honest, start: slowStart}
			p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt})
			p.Want(specA, 4, 4)
			settle(time.Minute)
			for range 3 {
				p.Release(get(t, p, specA, true))
			}
			synctest.Wait()
			mustBe(t, "starting at once", p.Stats().Starting > 0, true)
		})
	})
	t.Run("NoGaps", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := &fakeRuntime{agent: honest, start: slowStart}
			p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt})
			p.Want(cellA, 1, 1)
			settle(time.Minute)
			p.Want(specA, 1, 1)
			for range 250 { // 2.5 seconds of them
				p.Release(get(t, p, cellA, true))
				settle(10 * time.Millisecond)
			}
			mustBe(t, "stats", p.Stats(), sandbox.PoolStats{Warm: 2})
		})
	})
}

// TestPoolGivesRoomToTheNeediest: when not all can have what they want, those
// with the most calls have it, at the cost of those whose calls have stopped;
// and a min comes before everything.
func TestPoolGivesRoomToTheNeediest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		rt := &fakeRuntime{agent: honest, start: slowStart}
		p, _ := runPool(t, sandbox.PoolConfig{
			Runtime: rt, MaxMemory: 60 * mib, IdleMemory: func(sandbox.Spec) int64 { return 12 * mib },
		})
		low := sandbox.Spec{Image: "low"}
		p.Want(low, 1, 1)
		p.Want(specA, 0, 10)
		p.Want(specB, 0, 10)
		burst(t, p, specA, 10)
		settle(30 * time.Second)
		mustBe(t, "kept", rt.kept(), map[string]int{"low": 1, "a": 4})
		for range 20 {
			burst(t, p, specB, 3)
			wait(2 * time.Second)
		}
		settle(30 * time.Second)
		mustBe(t, "kept after calls of b", rt.kept(), map[string]int{"low": 1, "a": 1, "b": 3})
	})
}

// TestPoolDoesNotWaver: two specs with about the same calls do not take the only
// place from each other in turns.
func TestPoolDoesNotWaver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &fakeRuntime{agent: honest, start: slowStart}
		p, _ := runPool(t, sandbox.PoolConfig{Runtime: rt, MaxWarm: 1})
		p.Want(specA, 0, 1)
		p.Want(specB, 0, 1)
		for range 10 {
			burst(t, p, specA, 1)
			settle(10 * time.Second)
			mustBe(t, "kept", rt.kept(), map[string]int{"a": 1})
			burst(t, p, specB, 1)
			settle(10 * time.Second)
			mustBe(t, "kept", rt.kept(), map[string]int{"a": 1})
		}
	})
}

// kept counts the live instances by image.
func (r *fakeRuntime) kept() map[string]int {
	n := make(map[string]int)
	for _, spec := range r.all() {
		n[spec.Image]++
	}
	return n
}
