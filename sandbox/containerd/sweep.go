package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
)

// sweepers is how many sandboxes are removed at a time.
const sweepers = 8

// SweepReport tells what a sweep removed.
type SweepReport struct {
	// Sandboxes are those that had a record.
	Sandboxes int
	// Shims, Groups and Dirs had none: a shim, a cgroup, a directory with
	// FIFOs and disk, or runc's state, of a sandbox that was half made or half
	// removed.
	Shims, Groups, Dirs int
}

// Sweep removes what dead workers left: sandboxes of this owner, those of
// others once they have expired, and whatever carries a sandbox's name without
// a record of one. It leaves alone what is not ours and every sandbox whose
// worker lives, so it may run at any time; the start of a worker is the best.
// It goes on after an error and returns all of them.
func (r *Runtime) Sweep(ctx context.Context) (SweepReport, error) {
	r.sweeps.Lock()
	defer r.sweeps.Unlock()
	var report SweepReport
	// What lies about is looked at before the records. A sandbox's record is
	// made first and deleted last, so what has no record now is left over,
	// and not the work of somebody who is just starting.
	dirs := r.sandboxDirs()
	groups := r.group.children()
	recorded, dead, err := r.records(ctx)
	if err != nil {
		return report, err
	}
	errs := []error{
		r.removeAll(ctx, dead, &report), r.sweepFurnishing(), r.sweepLeases(ctx), r.sweepShims(ctx, &report),
		r.sweepTasks(ctx), r.sweepSharedShims(ctx, &report),
	}
	for _, id := range groups {
		if !recorded[id] {
			g := r.sandboxGroup(id)
			errs = append(errs, g.kill(ctx), g.remove(ctx))
			report.Groups++
		}
	}
	for _, id := range dirs {
		if !recorded[id] {
			errs = append(errs, r.removeSandboxDir(id))
			report.Dirs++
		}
	}
	if report != (SweepReport{}) {
		r.log.Info("swept", "sandboxes", report.Sandboxes, "shims", report.Shims, "groups", report.Groups, "dirs", report.Dirs)
	}
	return report, errors.Join(errs...)
}

// records returns the ids that have a record, and which of them are ours to
// remove.
func (r *Runtime) records(ctx context.Context) (recorded map[string]bool, dead []string, err error) {
	found, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return nil, nil, wrap("list containers", err)
	}
	recorded = map[string]bool{}
	for _, c := range found {
		recorded[c.ID] = true
		if r.abandoned(c) {
			dead = append(dead, c.ID)
		}
	}
	return recorded, dead, nil
}

// abandoned tells whether a container is ours to remove.
func (r *Runtime) abandoned(c containers.Container) bool {
	owner, ours := c.Labels[labelOwner]
	if !ours || rangeHeld(c.Labels[labelRange], r.groupOf(c)) {
		return false
	}
	if owner == r.cfg.Owner {
		return true
	}
	expires, err := time.Parse(time.RFC3339Nano, c.Labels[labelExpires])
	return err == nil && time.Now().After(expires)
}

func (r *Runtime) removeAll(ctx context.Context, ids []string, report *SweepReport) error {
	group := new(errgroup.Group)
	group.SetLimit(sweepers)
	errs := make([]error, len(ids))
	for n, id := range ids {
		group.Go(func() error {
			errs[n] = r.Remove(ctx, id)
			return nil
		})
	}
	_ = group.Wait()
	for n, err := range errs {
		switch {
		case err == nil:
			report.Sandboxes++
		case errors.Is(err, sandbox.ErrNotFound):
			errs[n] = nil // its own worker was just removing it
		}
	}
	return errors.Join(errs...)
}

// sweepShims removes shims of one sandbox without its record. A shim is
// started by another process of the same name, so there may be a new one each
// time; the first look that finds none ends it.
func (r *Runtime) sweepShims(ctx context.Context, report *SweepReport) error {
	for {
		shims, err := shimsOf(r.cfg.Address)
		if err != nil {
			return err
		}
		recorded, _, err := r.records(ctx)
		if err != nil {
			return err
		}
		found := false
		for _, s := range shims {
			if s.namespace != r.cfg.Namespace || recorded[s.id] || exists(r.shimDir(s.id)) {
				continue
			}
			found = true
			if err := r.removeShim(ctx, s); err != nil {
				return err
			}
			report.Shims++
		}
		if !found {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("containerd: sweep shims: %w", context.Cause(ctx))
		}
	}
}

// removeShim removes a shim without a record. One that containerd does not
// know, since one of them died before they met, is killed.
func (r *Runtime) removeShim(ctx context.Context, s shim) error {
	return errors.Join(r.removeLost(ctx, s.id), s.kill(r.cfg.Address))
}

// removeLost removes a sandbox without a record. containerd may know its task
// but does nothing to a task without a record; so it gets one again, and is
// removed as any other.
func (r *Runtime) removeLost(ctx context.Context, id string) error {
	record := containers.Container{
		ID: id, Runtime: containers.RuntimeInfo{Name: shimRuntime},
		Labels: map[string]string{labelOwner: r.cfg.Owner},
	}
	_, err := r.client.ContainerService().Create(ctx, record)
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return wrap("create record of what was lost", err)
	}
	return r.remove(ctx, record)
}

// Remove ends and removes the sandbox id, whatever state it is in and whoever
// made it.
func (r *Runtime) Remove(ctx context.Context, id string) error {
	if !validID.MatchString(id) {
		return fmt.Errorf("containerd: remove %q: %w", id, sandbox.ErrNotFound)
	}
	c, err := r.client.ContainerService().Get(ctx, id)
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("containerd: remove %s: %w", id, sandbox.ErrNotFound)
	}
	if err != nil {
		return wrap("look up container", err)
	}
	if _, ours := c.Labels[labelOwner]; !ours {
		return fmt.Errorf("containerd: remove %s: it is not a sandbox: %w", id, sandbox.ErrNotFound)
	}
	if err := r.remove(ctx, c); err != nil || c.SandboxID == "" {
		return err
	}
	_, err = r.removeUnusedShim(ctx, c.SandboxID)
	return err
}

// labelGroup is the path of a sandbox's cgroup.
const labelGroup = "toolfleet.cgroup"

// groupOf is the cgroup of a sandbox. Its record says which, since a worker in
// another place may have made it; without that it is where we would put it.
func (r *Runtime) groupOf(c containers.Container) cgroup {
	if p := c.Labels[labelGroup]; p != "" {
		return cgroup{path: p}
	}
	return r.sandboxGroup(c.ID)
}

// remove attaches, drains, kills and deletes. Killing alone is not enough for
// a tool that is blocked on a pipe nobody reads: the shim copies its output
// before it reports the end, and would wait for a reader until its patience of
// 10 seconds is over.
func (r *Runtime) remove(ctx context.Context, c containers.Container) error {
	id, group := c.ID, r.groupOf(c)
	stop := drain(r.sandboxDir(id))
	defer stop()
	errs := []error{group.kill(ctx)}
	kill := r.killTask(ctx, id)
	// runsc answers the kill of a task that has ended with an error that cannot
	// be told from others. What can be deleted was dead.
	if err := r.deleteTask(ctx, id); err != nil {
		errs = append(errs, kill, err)
	}
	errs = append(errs, group.remove(ctx), r.removeSandboxDir(id))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return wrapEnd("delete container", r.client.ContainerService().Delete(ctx, id))
}

// killTask is for a task that has no process in a cgroup: one created and
// never started has its first process there as well, so mostly there is
// nothing to do.
func (r *Runtime) killTask(ctx context.Context, id string) error {
	_, err := r.client.TaskService().Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: 9, All: true})
	if errdefs.IsFailedPrecondition(native(err)) {
		return nil // dead already
	}
	return wrapEnd("kill task", err)
}

// removeSandboxDir unmounts what is mounted below the sandbox's directory and
// removes it.
func (r *Runtime) removeSandboxDir(id string) error {
	if err := unmountBelow(r.sandboxDir(id)); err != nil {
		return err
	}
	return r.removeDir(id)
}

// drain reads and drops what comes out of a sandbox, if anything does, until
// the returned function is called.
func drain(dir string) (stop func()) {
	out, err := openFIFO(filepath.Join(dir, "out"), unix.O_RDONLY)
	if err != nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for {
			if _, err := out.Read(buf); err != nil {
				return
			}
		}
	}()
	return func() {
		_ = out.Close()
		<-done
	}
}

// sandboxDirs lists the sandboxes that have a directory of ours or of runc's.
func (r *Runtime) sandboxDirs() []string {
	ids := append(childDirs(filepath.Join(r.dir, "sandboxes")), childDirs(r.runcDir(""))...)
	slices.Sort(ids)
	return slices.Compact(ids)
}

func childDirs(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}
