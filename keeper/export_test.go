package keeper

import "time"

// SetSettle makes a keeper less patient.
func SetSettle(k *Keeper, d time.Duration) { k.settle = d }

// Elected reports whether a scheduler is the one that works.
func Elected(s *Scheduler) bool { return s.term.Load() != nil }
