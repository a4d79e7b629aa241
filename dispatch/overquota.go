package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/results"
)

// overQuota is the sentence of a call that is over its tenant's quota: which,
// how large, and when to try again. A call that was refused stays so, and what
// is to be tried is a new one.
type overQuota struct{ sentence string }

func overRate(limit int, after time.Duration) *overQuota {
	return &overQuota{fmt.Sprintf("The call was not run: the quota of %d calls a minute is used up. Make a new call in %s.", limit, max(time.Second, after))}
}

func overWaiting(limit int) *overQuota {
	return &overQuota{fmt.Sprintf("The call was not run: %d calls are waiting, and the quota lets no more than %d wait at a time. Make a new call once some of them have begun.", limit, limit)}
}

// overBlobs has nothing to promise when the call's own arguments are over the
// whole quota.
func overBlobs(limit, held, bytes int64, after time.Duration) *overQuota {
	s := fmt.Sprintf("The call was not run: the quota for long arguments and large results is %s, and %s of it are in use.", roughly(limit), roughly(held))
	switch {
	case bytes > limit:
		s += fmt.Sprintf(" The arguments of this call alone are %s: make a new call with shorter ones.", roughly(bytes))
	case after > 0:
		s += fmt.Sprintf(" The oldest of them go by age: make a new call in %.0f hours.", math.Ceil(after.Hours()))
	default:
		s += " Make a new call a little later."
	}
	return &overQuota{s}
}

// roughly rounds up to what a reader wants to know of a size.
func roughly(n int64) catalog.Bytes { return catalog.Bytes((n + 1023) / 1024 * 1024) }

// quota lets the call of a job in, refuses it in the job, or fails because its
// tenant has had too many refusals. leave is to be called when the call turns
// out to be known, or is not admitted.
//
// Only what opens a new log is counted. Whoever sends the same call again meets
// its log, however much of the quota is used: which is looked up when there is
// reason to refuse, and costs nothing otherwise.
func (d *Dispatcher) quota(ctx context.Context, job *catalog.Job, args string, bytes int64) (leave func(), err error) {
	if d.Quotas == nil {
		return func() {}, nil
	}
	ref := results.Ref{Tenant: job.Call.Tenant, Key: job.Call.Key()}
	var over *overQuota
	if job.Refusal == nil {
		if !fitsInline(args) {
			bytes += int64(len(args))
		}
		if over = d.Quotas.enter(ref, bytes); over == nil {
			return func() { d.Quotas.leave(ref) }, nil
		}
	}
	after := d.Quotas.flooded(ref.Tenant)
	if over == nil && after == 0 {
		return func() {}, nil
	}
	switch _, err := d.Log.Look(ctx, ref); {
	case err == nil:
		return func() {}, nil
	case !errors.Is(err, ErrNotFound):
		return nil, classify(ctx, err)
	case after > 0:
		return nil, &flood{after}
	}
	refusal := call.Failure(call.KindQuotaExceeded, over.sentence)
	job.Refusal = &refusal
	return func() {}, nil
}

// flood is an ErrFlood with a hint.
type flood struct{ after time.Duration }

func (f *flood) Error() string        { return ErrFlood.Error() }
func (f *flood) Is(target error) bool { return target == ErrFlood }
