package containerd

import (
	"context"
	"errors"
	"slices"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/core/containers"
)

// sweepTasks removes tasks without a record. Those in shims of their own went
// with these; one in a shared shim has nothing but its task to be found by.
func (r *Runtime) sweepTasks(ctx context.Context) error {
	found, err := r.client.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return wrap("list tasks", err)
	}
	recorded, _, err := r.records(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, task := range found.Tasks {
		if !recorded[task.ID] {
			errs = append(errs, r.removeLost(ctx, task.ID))
		}
	}
	return errors.Join(errs...)
}

// sweepSharedShims removes the shared shims of dead workers that serve nobody.
func (r *Runtime) sweepSharedShims(ctx context.Context, report *SweepReport) error {
	ids, err := r.sharedShimIDs(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		removed, err := r.removeUnusedShim(ctx, id)
		if removed {
			report.Shims++
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeUnusedShim removes the shared shim id, unless its worker lives or a
// sandbox is left of it, which may be somebody else's to remove.
func (r *Runtime) removeUnusedShim(ctx context.Context, id string) (removed bool, err error) {
	lock, err := lockDir(r.shimDir(id))
	switch {
	case err == nil:
		defer lock.Close()
	case exists(r.shimDir(id)):
		return false, nil
	}
	found, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return false, wrap("list containers", err)
	}
	if slices.ContainsFunc(found, func(c containers.Container) bool { return c.SandboxID == id }) {
		return false, nil
	}
	err = r.removeShimDir(ctx, id)
	return err == nil, err
}

// sharedShimIDs lists the shared shims that have a directory, or a record that
// outlived it: the directories go when the machine is restarted.
func (r *Runtime) sharedShimIDs(ctx context.Context) ([]string, error) {
	records, err := r.client.SandboxStore().List(ctx)
	if err != nil {
		return nil, wrap("list records of shims", err)
	}
	ids := childDirs(r.shimDir(""))
	for _, record := range records {
		if _, ours := record.Labels[labelOwner]; ours {
			ids = append(ids, record.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// deadShimDirs counts the directories of shared shims that no living worker
// holds.
func (r *Runtime) deadShimDirs() int {
	n := 0
	for _, id := range childDirs(r.shimDir("")) {
		if lock, err := lockDir(r.shimDir(id)); err == nil {
			lock.Close()
			n++
		}
	}
	return n
}
