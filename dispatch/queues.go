package dispatch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/queue"
)

// ClassQueue is where the calls of a class are.
type ClassQueue struct {
	Class string
	// Waiting calls were admitted and nobody has started them. Ready counts those
	// of them that may run now and wait for a slot only.
	Waiting, Ready int
	// InFlight calls are in a slot, or were given back and come again.
	InFlight int
	// Oldest is how long the oldest call that waits has waited; 0 when none does.
	Oldest time.Duration
}

// maxClasses bounds how many classes Queues asks about.
const maxClasses = 32

// Queues says where the calls of all tenants are: of the classes named, and of
// all in which calls wait. A class that the server does not tell of is left out,
// and the error says so beside what is known.
func (d *Dispatcher) Queues(ctx context.Context, classes []string) ([]ClassQueue, error) {
	waiting, now := d.Log.Waiting(), d.Log.Now()
	names := map[string]bool{}
	for _, class := range slices.AppendSeq(slices.Clone(classes), maps.Keys(waiting)) {
		names[class] = catalog.ValidClass(class)
	}
	var list []ClassQueue
	var errs []error
	for _, class := range slices.Sorted(maps.Keys(names)) {
		if !names[class] || len(list) == maxClasses {
			continue
		}
		q := ClassQueue{Class: class}
		if w, ok := waiting[class]; ok {
			q.Waiting, q.Oldest = w.Calls, max(0, now.Sub(w.Since))
		}
		depth, err := d.Queue.Depth(ctx, class)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		q.Ready, q.InFlight = depth.Waiting, depth.InFlight
		list = append(list, q)
	}
	return list, errors.Join(errs...)
}

// recentLetters is how many dead letters RecentDeadLetters tells.
const recentLetters = 5

// RecentDeadLetters are the last few dead letters of all tenants, the last first
// and without their argument texts, and how many there are in all. It is for the
// fleet's operators.
func (d *Dispatcher) RecentDeadLetters(ctx context.Context) ([]queue.Letter, int, error) {
	return d.Queue.Dead().Recent(ctx, recentLetters)
}

// Leader says which dispatcher schedules; "" when none does at the moment.
func (d *Dispatcher) Leader(ctx context.Context) (string, error) { return d.Queue.Leader(ctx) }
