// Package bench measures a whole fleet beside its bare rival, in one run on one
// machine: what a machine does today says little, what two things do beside
// each other says a lot. It prints `name value` lines.
//
// Every figure is the median of rounds taken in turn, so that a slow minute of
// the machine falls on all of them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// Config says what to measure with.
type Config struct {
	// Program is the toolfleet program; Programs is handed to it.
	Program, Programs string
	// BinDir holds containerd, its shim and runc.
	BinDir string
	// Image is the OCI archive of word-count, the tool that is called.
	Image string
	// Dir is a directory on a disk; everything is made below it.
	Dir string
	// Rounds is how often each figure is taken, Calls how many calls or
	// containers each time; for a rate, four times as many.
	Rounds, Calls int
	// Out takes the figures, Err what happens meanwhile.
	Out, Err io.Writer
}

// Run measures and prints. It leaves nothing behind.
func Run(ctx context.Context, c Config) (err error) {
	archive, err := os.Open(c.Image)
	if err != nil {
		return fmt.Errorf("no image of word-count: %w; run make images", err)
	}
	defer archive.Close()
	bare, err := containerd.StartBare(ctx, c.BinDir, c.Dir, archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.Stop()) }()
	fleet, err := startFleet(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.stop()) }()
	bus, err := openBus(ctx, filepath.Join(c.Dir, "bus"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bus.close()) }()

	figures := map[string][]float64{}
	for n := range c.Rounds + 1 {
		round, err := measure(ctx, c, bare, fleet, bus, n)
		if err != nil {
			return err
		}
		if n == 0 {
			continue // caches and pools fill
		}
		fmt.Fprintf(c.Err, "bench: round %d of %d\n", n, c.Rounds)
		for name, v := range round {
			figures[name] = append(figures[name], v)
		}
	}
	p := func(name string) float64 { return median(figures[name]) }
	for _, line := range []struct {
		name  string
		value float64
	}{
		{"bare_p50_ms", p("bare")},
		{"bare_rate", p("bare_rate")},
		{"warm_container_p50_ms", p("warm")},
		{"cold_container_p50_ms", p("cold")},
		{"ratio_warm_container_vs_bare_p50", p("warm") / p("bare")},
		{"ratio_cold_container_vs_bare_p50", p("cold") / p("bare")},
		{"container_rate", p("cold_rate")},
		{"ratio_container_rate_vs_bare", p("cold_rate") / p("bare_rate")},
		{"warm_sandbox_pss_mib", p("pss")},
		{"bus_p50_ms", p("bus")},
		{"bus_rate", p("bus_rate")},
		{"bus_cpu_ms", p("bus_cpu_ms")},
	} {
		fmt.Fprintf(c.Out, "%s %.3f\n", line.name, line.value)
	}
	return nil
}

// measure takes every figure once, in milliseconds or per second.
func measure(ctx context.Context, c Config, bare *containerd.Bare, fleet *fleet, bus *bus, round int) (map[string]float64, error) {
	out := map[string]float64{}
	run := func(n int, parallel string) error {
		return bare.Run(ctx, fmt.Sprintf("b-%d-%s-%d", round, parallel, n), "/tool")
	}
	for _, m := range []struct {
		name string
		// before is not timed.
		before, f func(n int) error
	}{
		{"bare", nil, func(n int) error { return run(n, "p50") }},
		{"warm", func(int) error { return fleet.full(ctx) }, func(int) error { return fleet.call(ctx, "warm") }},
		{"cold", func(int) error { return fleet.idle(ctx) }, func(int) error { return fleet.call(ctx, "cold") }},
		{"bus", nil, func(int) error { return bus.call(ctx) }},
	} {
		var took []float64
		for n := range c.Calls {
			if m.before != nil {
				if err := m.before(n); err != nil {
					return nil, fmt.Errorf("bench: %s: %w", m.name, err)
				}
			}
			began := time.Now()
			if err := m.f(n); err != nil {
				return nil, fmt.Errorf("bench: %s: %w", m.name, err)
			}
			took = append(took, float64(time.Since(began).Microseconds())/1000)
		}
		out[m.name] = median(took)
	}
	e, err := flood(ctx, busCalls*c.Calls, busSlots, bus.post)
	if err != nil {
		return nil, fmt.Errorf("bench: bus: %w", err)
	}
	out["bus_rate"], out["bus_cpu_ms"] = e.rate, float64(e.cpu)/float64(time.Millisecond)
	for _, m := range []struct {
		name string
		f    func(parallel, n int) error
	}{
		{"bare_rate", func(parallel, n int) error { return run(n, fmt.Sprint("x", parallel)) }},
		{"cold_rate", func(_, _ int) error { return fleet.call(ctx, "cold") }},
	} {
		for _, parallel := range []int{1, 2, 4, 8} {
			// Four times as many, so that begin and end weigh little: it is
			// the rate that can be held.
			rate, err := rate(parallel, 4*c.Calls, func(n int) error { return m.f(parallel, n) }, func() error { return fleet.idle(ctx) })
			if err != nil {
				return nil, fmt.Errorf("bench: %s: %w", m.name, err)
			}
			out[m.name] = max(out[m.name], rate)
		}
	}
	if err := fleet.full(ctx); err != nil {
		return nil, fmt.Errorf("bench: memory: %w", err)
	}
	memory, err := containerd.MeasureFootprint(fleet.state())
	if err != nil {
		return nil, fmt.Errorf("bench: memory: %w", err)
	}
	out["pss"] = float64(memory.Bytes) / float64(1<<20) / float64(max(1, memory.Sandboxes))
	return out, nil
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

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return 0
	}
	return s[len(s)/2]
}
