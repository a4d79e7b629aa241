package sandbox_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/sandbox"
)

// TestPain15PoolNeverExceeds: whatever is wanted, taken, released and dies,
// there are never more sandboxes of a spec, warm and starting together, than
// its max (of cells: with those in use, than were lately), nor more in all than
// MaxWarm and MaxMemory allow; a sandbox is handed out to one call at a time
// and has the spec that was asked for, to its limits and its owner (P17, P19);
// and in the end nothing is left, nor counted (P104).
func TestPain15PoolNeverExceeds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ops := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) poolOp {
			return poolOp{
				what: rapid.SampledFrom([]string{"want", "get", "get", "release", "release", "die", "wait"}).Draw(r, "what"),
				spec: rapid.SampledFrom(poolSpecs).Draw(r, "spec"),
				n:    rapid.IntRange(0, 4).Draw(r, "n"),
			}
		}), 0, 80).Draw(r, "ops")
		failing := rapid.Bool().Draw(r, "failing")
		var fault error
		synctest.Test(t, func(t *testing.T) { fault = playPool(t, ops, failing) })
		if fault != nil {
			r.Fatal(fault)
		}
	})
}

type poolOp struct {
	what string
	spec sandbox.Spec
	n    int
}

// The image of each is what an idle one costs.
var poolSpecs = []sandbox.Spec{
	{Image: "1"},
	{Image: "2"},
	{Image: "1", Limits: sandbox.Limits{Pids: 9}},
	{Image: "1", Isolation: "cell", Owner: "t/a"},
	{Image: "1", Isolation: "cell", Owner: "u/a"},
}

const (
	poolMaxWarm   = 5
	poolMaxMemory = 6
)

func idleMemory(spec sandbox.Spec) int64 {
	n, _ := strconv.ParseInt(spec.Image, 10, 64)
	return n
}

// game is a pool being played with, and what has to be true of it.
type game struct {
	*sandbox.Pool
	rt       *fakeRuntime
	max      map[sandbox.Spec]int // of each spec, by the last Want
	lowered  map[sandbox.Spec]int // what it was when it was last lowered,
	at       map[sandbox.Spec]time.Time
	inUse    []held
	busy     map[sandbox.Spec]time.Time // when a cell was last got
	peak     map[sandbox.Spec]int       // and how many were in use at once since long before
	starting map[sandbox.Spec]int       // guarded by rt.mu
}

// held is a sandbox that the pool handed out for spec.
type held struct {
	sb   *sandbox.Sandbox
	spec sandbox.Spec
}

// playPool plays ops against a pool and checks the law after each.
func playPool(t *testing.T, ops []poolOp, failing bool) error {
	g := &game{
		rt: &fakeRuntime{agent: honest}, max: map[sandbox.Spec]int{}, lowered: map[sandbox.Spec]int{},
		at: map[sandbox.Spec]time.Time{}, starting: map[sandbox.Spec]int{},
		busy: map[sandbox.Spec]time.Time{}, peak: map[sandbox.Spec]int{},
	}
	starts := 0
	g.rt.start = func(ctx context.Context, spec sandbox.Spec) error {
		g.rt.mu.Lock()
		starts++
		g.starting[spec]++
		fail := failing && starts%3 == 0
		g.rt.mu.Unlock()
		defer func() {
			g.rt.mu.Lock()
			g.starting[spec]--
			g.rt.mu.Unlock()
		}()
		if fail {
			return errFake
		}
		return slowStart(ctx, spec)
	}
	var stop func()
	g.Pool, stop = runPool(t, sandbox.PoolConfig{
		Runtime: g.rt, MaxWarm: poolMaxWarm, MaxMemory: poolMaxMemory, IdleMemory: idleMemory, Parallel: 3,
	})
	for i, op := range ops {
		err := g.play(t.Context(), op)
		synctest.Wait()
		if err == nil {
			err = g.law()
		}
		if err != nil {
			return fmt.Errorf("step %d, %v: %w", i, op, err)
		}
	}
	stop()
	for _, h := range g.inUse {
		g.Release(h.sb)
	}
	return g.over()
}

func (g *game) play(ctx context.Context, op poolOp) error {
	switch op.what {
	case "want":
		if op.n < g.max[op.spec] {
			g.lowered[op.spec], g.at[op.spec] = g.max[op.spec], time.Now()
		}
		g.max[op.spec] = op.n
		g.Want(op.spec, op.n/2, op.n)
	case "get":
		sb, _, err := g.Get(ctx, op.spec)
		if err != nil {
			return nil //nolint:nilerr // it was told to fail
		}
		if g.uses(sb.ID()) {
			return fmt.Errorf("%s is handed out twice", sb.ID())
		}
		g.inUse = append(g.inUse, held{sb, op.spec})
		g.busy[op.spec], g.peak[op.spec] = time.Now(), max(g.peak[op.spec], g.used(op.spec))
		return g.right(g.inUse[len(g.inUse)-1])
	case "release":
		if len(g.inUse) > 0 {
			g.Release(g.inUse[0].sb)
			g.inUse = g.inUse[1:]
		}
	case "die":
		for victim := range g.rt.all() {
			victim.die()
			break
		}
	case "wait":
		wait(time.Duration(op.n) * 700 * time.Millisecond)
	}
	return nil
}

func (g *game) uses(id string) bool {
	return slices.ContainsFunc(g.inUse, func(h held) bool { return h.sb.ID() == id })
}

// used counts those of spec in use.
func (g *game) used(spec sandbox.Spec) int {
	n := 0
	for _, h := range g.inUse {
		if h.spec == spec {
			n++
		}
	}
	return n
}

// right tells whether h is a sandbox of the spec that was asked for.
func (g *game) right(h held) error {
	for i, spec := range g.rt.all() {
		if i.id == h.sb.ID() && spec != h.spec {
			return fmt.Errorf("a sandbox of %v for a call of %v", spec, h.spec)
		}
	}
	return nil
}

// law checks what has to be true of a pool at rest.
func (g *game) law() error {
	if n := g.Stats().InUse; n != len(g.inUse) {
		return fmt.Errorf("%d in use, want %d", n, len(g.inUse))
	}
	kept := map[sandbox.Spec]int{}
	for i, spec := range g.rt.all() {
		if !g.uses(i.id) {
			kept[spec]++
		}
	}
	g.rt.mu.Lock()
	for spec, n := range g.starting {
		kept[spec] += n
	}
	g.rt.mu.Unlock()
	sum, memory := 0, int64(0)
	for spec, n := range kept {
		sum += n
		memory += int64(n) * idleMemory(spec)
		if most := g.most(spec, g.used(spec)); n > most {
			return fmt.Errorf("%d of %v warm and starting, want at most %d", n, spec, most)
		}
	}
	if sum > poolMaxWarm || memory > poolMaxMemory {
		return fmt.Errorf("%d warm and starting with %d of memory", sum, memory)
	}
	return nil
}

// most is how many there may be of spec. A refill that began before its max was
// lowered still ends.
func (g *game) most(spec sandbox.Spec, used int) int {
	n := g.max[spec]
	if time.Since(g.at[spec]) <= time.Second {
		n = max(n, g.lowered[spec])
	}
	if spec.Isolation == "cell" && g.max[spec] > 0 {
		if time.Since(g.busy[spec]) > 11*time.Second {
			g.peak[spec] = 0
		}
		n = max(n, g.peak[spec]-used)
	}
	return n
}

// over checks what has to be true when all is over.
func (g *game) over() error {
	if live, _ := g.rt.count(); live != 0 {
		return fmt.Errorf("%d sandboxes are left", live)
	}
	if st := g.Stats(); st != (sandbox.PoolStats{}) {
		return fmt.Errorf("counted in the end: %+v", st)
	}
	for kind, level := range g.Levels() {
		if level != (sandbox.Level{}) {
			return fmt.Errorf("level of %v in the end: %+v", kind, level)
		}
	}
	return nil
}
