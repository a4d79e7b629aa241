package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

const (
	// intakeLimit is the part of the queues up to which new calls are taken. The
	// rest is for calls that were admitted and have to be queued again.
	intakeLimit = 0.8
	// waitingRetry is the hint when too many calls wait: some will have ended.
	waitingRetry = 10 * time.Second
)

// room refuses a new call that the queues have no place for. It is asked before
// the admission: a call that is taken is never lost, so one that might be is not
// taken. A call that is known is let through, to find its log.
func (d *Dispatcher) room(ctx context.Context, job catalog.Job) error {
	if job.Refusal != nil {
		return nil // is answered and never queued
	}
	room := d.Queue.Room(ctx)
	var full error
	switch {
	case d.MaxWaiting > 0 && room.Jobs >= d.MaxWaiting:
		full = &unavailable{waitingRetry, fmt.Errorf("%w: %d, and the limit is %d", ErrBusy, room.Jobs, d.MaxWaiting)}
	case room.Used > intakeLimit:
		full = &unavailable{fullRetry, fmt.Errorf("%w: over %d %% of its bytes are used", queue.ErrFull, int(intakeLimit*100))}
	default:
		return nil
	}
	c := job.Call
	switch _, err := d.Log.Look(ctx, results.Ref{Tenant: c.Tenant, Key: c.Key()}); {
	case errors.Is(err, results.ErrNotFound):
		return full
	case err != nil:
		return err
	}
	return nil
}
