package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

// BusConfig says what to measure the bus with.
type BusConfig struct {
	// Only names the one measurement that is made: rates, waiting or fair; empty
	// is all.
	Only string
	// Program is the toolfleet program, whose `bench-bus --serve DIR` is
	// [ServeBus].
	Program string
	// Dir is a directory on a disk; everything is made below it.
	Dir string
	// Rounds is how often each rate and latency is taken, Calls how many calls
	// each time.
	Rounds, Calls int
	// Waiting is how many calls wait at once when their memory is measured.
	Waiting int
	// Tenants share the fleet when one of them makes Flood calls.
	Tenants, Flood int
	// Out takes the figures, Err what happens meanwhile.
	Out, Err io.Writer
}

const (
	// rateSlots is how many calls the fleet runs at once when its rate is
	// measured: as many as are ever in flight, so that the scheduler, which
	// decides about each, need not let one wait.
	rateSlots = 64
	// fairSlots is how many when tenants share it.
	fairSlots = 8
)

// atOnce are the calls in flight of which the best rate counts.
var atOnce = []int{1, 8, 32, 64}

// RunBus measures what a call costs beside its sandbox, which here does nothing
// and takes no time: doors, log, scheduler, queue and worker. It prints `name
// value` lines.
//
// Latency is taken with one call in flight. The rate stands beside the rate of
// a bare loop over JetStream. Both are medians of rounds taken in turn.
func RunBus(ctx context.Context, c BusConfig) error {
	for _, m := range []struct {
		name    string
		measure func(context.Context, BusConfig) error
	}{{"rates", measureRates}, {"waiting", measureWaiting}, {"fair", measureFairness}} {
		if c.Only != "" && c.Only != m.name {
			continue
		}
		if err := m.measure(ctx, c); err != nil {
			return fmt.Errorf("bench: %s: %w", m.name, err)
		}
	}
	return nil
}

// print prints one figure.
func (c BusConfig) print(name string, v float64) { fmt.Fprintf(c.Out, "%s %.3f\n", name, v) }

func measureRates(ctx context.Context, c BusConfig) (err error) {
	fleet, err := openBus(ctx, busConfig{dir: filepath.Join(c.Dir, "rates"), slots: rateSlots, noop: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close()) }()
	if err := fleet.call(ctx); err != nil {
		return err
	}
	bare, err := openBareBus(ctx, filepath.Join(c.Dir, "bare"), fleet.nc)
	if err != nil {
		return err
	}
	defer bare.close()

	taken := map[string][]float64{}
	for n := range c.Rounds + 1 {
		round, err := c.round(ctx, fleet, bare)
		if err != nil {
			return err
		}
		if n == 0 {
			continue // caches and pools fill
		}
		fmt.Fprintf(c.Err, "bench: round %d of %d: %v\n", n, c.Rounds, round)
		for name, v := range round {
			taken[name] = append(taken[name], v)
		}
	}
	for _, name := range []string{"bus_p50_ms", "bus_rate", "bus_cpu_ms", "bare_bus_rate", "bare_bus_cpu_ms", "ratio_bus_rate_vs_bare"} {
		c.print(name, quantile(taken[name], 0.5))
	}
	return nil
}

// round takes the figures of rate and latency once.
func (c BusConfig) round(ctx context.Context, fleet *bus, bare *bareBus) (map[string]float64, error) {
	out := map[string]float64{}
	for name, f := range map[string]func(context.Context) error{"bus": fleet.call, "bare_bus": bare.call} {
		e, err := best(ctx, c.Calls, f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name+"_rate"], out[name+"_cpu_ms"] = e.rate, milliseconds(e.cpu)
	}
	out["ratio_bus_rate_vs_bare"] = out["bus_rate"] / out["bare_bus_rate"]
	took := make([]float64, 0, c.Calls)
	for range c.Calls {
		began := time.Now()
		if err := fleet.call(ctx); err != nil {
			return nil, err
		}
		took = append(took, milliseconds(time.Since(began)))
	}
	out["bus_p50_ms"] = quantile(took, 0.5)
	return out, nil
}

// best is the highest rate of several numbers of calls in flight.
func best(ctx context.Context, calls int, f func(context.Context) error) (effort, error) {
	var top effort
	for _, n := range atOnce {
		e, err := flood(ctx, calls, n, f)
		if err != nil {
			return effort{}, err
		}
		if e.rate > top.rate {
			top = e
		}
	}
	return top, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
