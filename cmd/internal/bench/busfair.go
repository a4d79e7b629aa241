package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// fairCalls is how many calls each of the tenants makes, one after another.
	fairCalls = 3
	// floodClients submit the flood: as fast as the dispatcher takes it.
	floodClients = 8
)

// measureFairness takes the 95th percentile of how long the calls of many
// tenants take, by themselves and while one more tenant floods the fleet.
//
// Each tenant has one call in flight, so there are always more calls than
// slots, and what a tenant waits for in quiet times is the other tenants.
func measureFairness(ctx context.Context, c BusConfig) (err error) {
	fleet, err := openBus(ctx, busConfig{dir: filepath.Join(c.Dir, "fair"), slots: fairSlots, noop: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fleet.close()) }()
	others := c.Tenants - 1
	if _, err := fleet.crowd(ctx, others); err != nil { // caches fill
		return err
	}
	quiet, err := fleet.crowd(ctx, others)
	if err != nil {
		return err
	}
	flooded, left, err := fleet.flooded(ctx, c.Flood, others)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Err, "bench: %d tenants beside a flood of %d calls, of which %d were waiting when they were done\n", others, c.Flood, left)
	c.print("fair_quiet_p95_ms", quiet)
	c.print("fair_flooded_p95_ms", flooded)
	c.print("fair_p95_ratio", flooded/quiet)
	return nil
}

// flooded is a crowd that comes when a flood is in the queue, and goes on coming
// out of it. left is how much of the flood was not answered when the crowd was.
func (b *bus) flooded(ctx context.Context, calls, others int) (p95 float64, left int64, err error) {
	var submitted, answered atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	var flood errgroup.Group
	for range floodClients {
		flood.Go(func() error {
			for submitted.Add(1) <= int64(calls) {
				t, err := b.submit(ctx, "flood")
				if err != nil {
					return err
				}
				g.Go(func() error {
					defer answered.Add(1)
					return b.await(ctx, t)
				})
			}
			return nil
		})
	}
	err = flood.Wait()
	if err == nil {
		p95, err = b.crowd(ctx, others)
	}
	left = int64(calls) - answered.Load()
	return p95, left, errors.Join(err, g.Wait())
}

// crowd lets so many tenants make their calls, all at the same time, and
// returns the 95th percentile of how long one took, in milliseconds.
func (b *bus) crowd(ctx context.Context, tenants int) (float64, error) {
	var mu sync.Mutex
	var took []float64
	g, ctx := errgroup.WithContext(ctx)
	for n := range tenants {
		g.Go(func() error {
			for range fairCalls {
				began := time.Now()
				if err := b.callOf(ctx, fmt.Sprintf("t%d", n)); err != nil {
					return err
				}
				mu.Lock()
				took = append(took, milliseconds(time.Since(began)))
				mu.Unlock()
			}
			return nil
		})
	}
	err := g.Wait()
	return quantile(took, 0.95), err
}
