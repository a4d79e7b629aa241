package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// Keeper does the housekeeping. Its fields are set before Run and not changed
// after it.
type Keeper struct {
	// Log must be followed whole, and running (see [results.Log.Run]).
	Log      *results.Log
	Queue    *queue.Queue
	Registry *queue.Registry
	// Scheduler is this process's; without one the server is asked where each
	// call is.
	Scheduler *Scheduler
	// Metrics may be nil.
	Metrics *metrics.Metrics
	// Logger takes what was done, once each; nil means nothing is said.
	Logger *slog.Logger

	// settle is settleTime unless a test says otherwise.
	settle time.Duration
}

const (
	// every is the keeper's step.
	every = time.Second
	// budget is how many calls are looked at in one step, the longest due
	// first. What does not fit waits for the next step.
	budget = 500
	// stepTimeout bounds one step.
	stepTimeout = 30 * time.Second
	// A call that is in order is looked at again after a pause that grows from
	// shortPause to longPause; one that a worker has in its hands, whose worker
	// may die, every shortPause.
	shortPause = 2 * time.Second
	longPause  = 30 * time.Second
	// doubtPause is the pause, a few looks after a call was queued, from which on
	// the scheduler must have heard of it.
	doubtPause = 4 * shortPause
)

// Run keeps house until ctx is done. A step that fails is logged once and done
// again.
func (k *Keeper) Run(ctx context.Context) error {
	if k.Logger == nil {
		k.Logger = slog.New(slog.DiscardHandler)
	}
	if k.settle == 0 {
		k.settle = settleTime
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := k.step(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			k.Logger.Warn("housekeeping fails and is tried again", "error", err)
		case err == nil && failing:
			k.Logger.Info("housekeeping works again")
		}
		failing = err != nil
	}
}

// step looks at the calls that are due.
func (k *Keeper) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	now := k.Log.Now() // entries are dated by the server
	// A call is due from its admission on, and let alone for a while.
	before := now.Add(-k.settle)
	due, err := k.Log.Due(ctx, before, budget)
	if err != nil {
		return err
	}
	r := &round{Keeper: k, now: now, alive: map[results.Worker]bool{}}
	var errs []error
	for _, u := range due {
		// 10 failures: the server is away, most likely. Not 500 times the same.
		if ctx.Err() == nil && len(errs) < 10 {
			err := r.visit(ctx, u)
			if err == nil {
				continue
			}
			errs = append(errs, fmt.Errorf("call %s: %w", u.Key, err))
			k.Log.Later(u.Ref, before.Add(shortPause), u.Pause) // behind those that were not looked at
			continue
		}
		k.Log.Later(u.Ref, before, u.Pause) // in the next step
	}
	return errors.Join(append(errs, r.countDead(ctx))...)
}
