package keeper

import (
	"context"
	"log/slog"
	"time"

	"github.com/toolfleet/toolfleet/call"
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

// Deafen makes an elected scheduler forget a call, in a term that began long ago.
func Deafen(s *Scheduler, key call.Key) {
	t := s.term.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line.forget(t.line.calls[idOf(key)])
	t.began = t.began.Add(-doubtAfter)
}

// Waits reports whether an elected scheduler knows that a call waits.
func Waits(s *Scheduler, key call.Key) bool { return s.standing(key) == inLine }

// DoubtPause is doubtPause.
const DoubtPause = doubtPause

// OnDoubt has f called in place of the end of a term that is doubted, and makes
// it old enough for that.
func OnDoubt(s *Scheduler, f func()) {
	t := s.term.Load()
	t.began = t.began.Add(-doubtAfter)
	t.end = func(error) { f() }
}
