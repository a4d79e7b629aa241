package keeper

import (
	"context"
	"log/slog"
	"time"

	"github.com/toolfleet/toolfleet/results"
)

// SetSettle makes a keeper less patient.
func SetSettle(k *Keeper, d time.Duration) { k.settle = d }

// Elected reports whether a scheduler is the one that works.
func Elected(s *Scheduler) bool { return s.term.Load() != nil }

// Visit looks at a call as a keeper does at some time.
func Visit(ctx context.Context, k *Keeper, u results.Unfinished, now time.Time) error {
	k.Logger, k.settle = slog.New(slog.DiscardHandler), settleTime
	return (&round{Keeper: k, now: now, alive: map[results.Worker]bool{}}).visit(ctx, u)
}
