package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
)

// leaseLife bounds how long half a pull or import is kept for a worker that
// does not come back. One that does sweeps its own at its start. containerd's
// own default is a day.
const leaseLife = time.Hour

// labelProcess on a lease is the run of the worker that took it.
const labelProcess = "toolfleet.process"

// lease keeps containerd's collector away from what is being made under the
// context, until done is called. Under a lease it is that one, which ends when
// whoever took it is done: an import is not over when its first image is ready.
func (r *Runtime) lease(ctx context.Context) (_ context.Context, done func(), err error) {
	if _, held := leases.FromContext(ctx); held {
		return ctx, func() {}, nil
	}
	ctx, _, err = r.client.WithLease(ctx, leases.WithRandomID(), leases.WithExpiration(leaseLife),
		leases.WithLabels(map[string]string{labelOwner: r.cfg.Owner, labelProcess: r.process}))
	if err != nil {
		return nil, nil, wrap("take lease", err)
	}
	return ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
		defer cancel()
		id, _ := leases.FromContext(ctx)
		var now []leases.DeleteOpt
		if r.full() { // what it held is collected at some time, or at once
			now = append(now, leases.SynchronousDelete)
		}
		if err := r.client.LeasesService().Delete(ctx, leases.Lease{ID: id}, now...); err != nil {
			r.log.Warn("lease not given back; it will expire", "error", err)
		}
	}, nil
}

const leaseTimeout = 10 * time.Second

// sweepLeases gives back the leases of earlier runs of this worker, which were
// killed while they pulled or imported, and has what they held collected:
// containerd collects after changes, never by time alone.
func (r *Runtime) sweepLeases(ctx context.Context) error {
	service := r.client.LeasesService()
	held, err := service.List(ctx, fmt.Sprintf("labels.%q==%q", labelOwner, r.cfg.Owner))
	if err != nil {
		return wrap("list leases", err)
	}
	var errs []error
	for _, l := range held {
		if l.Labels[labelProcess] != r.process {
			errs = append(errs, wrapEnd("delete lease", service.Delete(ctx, l, leases.SynchronousDelete)))
		}
	}
	return errors.Join(errs...)
}
