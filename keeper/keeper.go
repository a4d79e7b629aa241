package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	// Metrics may be nil.
	Metrics *metrics.Metrics
	// Logger takes what was done, once each; nil means nothing is said.
	Logger *slog.Logger

	// settle is settleTime unless a test says otherwise.
	settle time.Duration
	// visits says when each open call is looked at next. Only Run touches it.
	visits map[results.Ref]visit
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
)

// visit is when a call is looked at next, and the pause before it.
type visit struct {
	at    time.Time
	pause time.Duration
}

// Run keeps house until ctx is done. A step that fails is logged once and done
// again.
func (k *Keeper) Run(ctx context.Context) error {
	if k.Logger == nil {
		k.Logger = slog.New(slog.DiscardHandler)
	}
	if k.settle == 0 {
		k.settle = settleTime
	}
	k.visits = map[results.Ref]visit{}
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
	now := time.Now()
	open, err := k.Log.Unfinished(ctx, now.Add(-k.settle))
	if err != nil {
		return err
	}
	r := &round{Keeper: k, now: now, alive: map[results.Worker]bool{}}
	var errs []error
	for _, u := range k.due(open, now) {
		if err := r.visit(ctx, u); err != nil {
			errs = append(errs, fmt.Errorf("call %s: %w", u.Key, err))
		}
		if ctx.Err() != nil || len(errs) >= 10 {
			break // the server is away, most likely: not 500 times the same
		}
	}
	return errors.Join(append(errs, r.countDead(ctx))...)
}

// due picks the calls to look at now, and forgets those that have ended.
func (k *Keeper) due(open []results.Unfinished, now time.Time) []results.Unfinished {
	visits := make(map[results.Ref]visit, len(open))
	var due []results.Unfinished
	for _, u := range open {
		v := k.visits[u.Ref]
		visits[u.Ref] = v
		if !v.at.After(now) || v.pause > shortPause && isExpired(u, now) {
			due = append(due, u)
		}
	}
	k.visits = visits
	slices.SortStableFunc(due, func(a, b results.Unfinished) int {
		return visits[a.Ref].at.Compare(visits[b.Ref].at)
	})
	return due[:min(len(due), budget)]
}

// isExpired reports whether a call that nobody has started has waited too long.
func isExpired(u results.Unfinished, now time.Time) bool {
	return u.Start == nil && !u.Expires.IsZero() && now.After(u.Expires)
}
