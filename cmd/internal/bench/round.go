package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// cellCalls is how many more calls than containers cells are measured with:
// they are that much shorter.
const cellCalls = 40

// round takes every figure once: milliseconds, calls a second, mebibytes, or
// mebibytes a second.
func (b *bench) round(ctx context.Context, round int) (map[string][]float64, error) {
	out := map[string][]float64{}
	for _, take := range []func(context.Context, int, map[string][]float64) error{
		b.latencies, b.rates, b.harm, b.memory, b.egress,
	} {
		if err := take(ctx, round, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// latencies takes the median time of one call with nothing else going on.
func (b *bench) latencies(ctx context.Context, round int, out map[string][]float64) error {
	full := func(f *fleet) func() error { return func() error { return f.full(ctx) } }
	for _, m := range []struct {
		name string
		// before is not timed. nil does nothing.
		before func() error
		f      func(n int) error
	}{
		{"bare", nil, func(n int) error { return b.bareRun(ctx, fmt.Sprintf("b-%d-p50-%d", round, n)) }},
		{"bwrap", nil, func(int) error { return b.bwrap.run(ctx) }},
		{"warm", full(b.containers), func(int) error { return b.containers.call(ctx, "warm") }},
		{"cold", full(b.containers), func(int) error { return b.containers.call(ctx, "cold") }},
		{"cell", full(b.cells), func(int) error { return b.cells.call(ctx, "cell") }},
		{"bus", nil, func(int) error { return b.bus.call(ctx) }},
	} {
		var took []float64
		for n := range b.c.Calls {
			if m.before != nil {
				if err := m.before(); err != nil {
					return fmt.Errorf("%s: %w", m.name, err)
				}
			}
			began := time.Now()
			if err := m.f(n); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			took = append(took, float64(time.Since(began).Microseconds())/1000)
		}
		out[m.name] = []float64{quantile(took, 0.5)}
	}
	return nil
}

// rates takes how many calls a second are sustained: the best of one, two, four
// and eight in flight. Each is measured for about three seconds: the best of
// short ones is the luckiest, and would flatter what is slow.
func (b *bench) rates(ctx context.Context, round int, out map[string][]float64) error {
	none := func() error { return nil }
	for _, m := range []struct {
		name  string
		calls int
		f     func(parallel, n int) error
		// idle waits until all that the calls have started has ended; the time
		// counts.
		idle func() error
	}{
		{"bare_rate", 3, func(parallel, n int) error {
			return b.bareRun(ctx, fmt.Sprintf("b-%d-x%d-%d", round, parallel, n))
		}, none},
		{"cold_rate", 4, func(_, _ int) error { return b.containers.call(ctx, "cold") }, func() error { return b.containers.idle(ctx) }},
		{"cell_rate", cellCalls, func(_, _ int) error { return b.cells.call(ctx, "cell") }, func() error { return b.cells.idle(ctx) }},
		{"go_cell_rate", cellCalls, func(_, _ int) error { return b.cells.call(ctx, "go-cell") }, func() error { return b.cells.idle(ctx) }},
		{"gvisor_rate", 2, func(_, _ int) error { return b.gvisor.call(ctx, "gvisor") }, func() error { return b.gvisor.idle(ctx) }},
		{"gvisor_cell_rate", 12, func(_, _ int) error { return b.gvisor.call(ctx, "gvisor-cell") }, func() error { return b.gvisor.idle(ctx) }},
	} {
		best := 0.0
		for _, parallel := range []int{1, 2, 4, 8} {
			r, err := rate(parallel, m.calls*b.c.Calls, func(n int) error { return m.f(parallel, n) }, m.idle)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			best = max(best, r)
		}
		out[m.name] = []float64{best}
	}
	return nil
}

// rate calls f n times, so many at once, and returns how many a second that
// were, with everything removed behind them.
func rate(parallel, n int, f func(n int) error, idle func() error) (float64, error) {
	began := time.Now()
	g := errgroup.Group{}
	g.SetLimit(parallel)
	for n := range n {
		g.Go(func() error { return f(n) })
	}
	if err := errors.Join(g.Wait(), idle()); err != nil {
		return 0, err
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// bareRun is one call of the bare rival.
func (b *bench) bareRun(ctx context.Context, id string) error {
	return b.bare.Run(ctx, id, measured...)
}

// memory takes what one idle warm container keeps in memory.
func (b *bench) memory(ctx context.Context, _ int, out map[string][]float64) error {
	if err := b.containers.full(ctx); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	used, err := containerd.MeasureFootprint(b.containers.state())
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	out["pss"] = []float64{float64(used.Bytes) / mebi / float64(max(1, used.Sandboxes))}
	return nil
}

const mebi = 1 << 20

// quantile is the value that a share q of all values does not exceed.
func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return 0
	}
	return s[min(len(s)-1, int(q*float64(len(s))))]
}
