package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"

	"github.com/toolfleet/toolfleet/internal/failpoint"
	"github.com/toolfleet/toolfleet/sandbox"
)

// Bounds of a start once it has begun to make things, and of its undoing.
const (
	makeTimeout = 30 * time.Second
	undoTimeout = 20 * time.Second
)

// Start makes the sandbox id and returns once its agent runs.
func (r *Runtime) Start(ctx context.Context, id string, spec sandbox.Spec) (sandbox.Instance, error) {
	if !validID.MatchString(id) {
		return nil, fmt.Errorf("containerd: %q is not a sandbox id", id)
	}
	h, err := r.usable(ctx, spec.Runtime)
	if err != nil {
		return nil, err
	}
	switch spec.Isolation {
	case "", "container", "cell":
	default:
		return nil, fmt.Errorf("containerd: there is no isolation %q; use container or cell", spec.Isolation)
	}
	root, err := r.ensure(ctx, spec.Image, spec.Pull)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("containerd: start %s: %w", id, context.Cause(ctx))
	}
	i := &instance{id: id, rt: r, cgroup: r.sandboxGroup(id), cells: spec.Isolation == "cell", secrets: spec.Secrets}
	i.cgroup.counters = new(counters)
	if err := i.start(ctx, root, h, spec.Limits.WithDefaults()); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return nil, errors.Join(err, i.Close(undo))
	}
	return i, nil
}

// start goes step by step; each step leaves in i what Close has to undo.
//
// A cancellation is heeded before and after, but not in between: a message to
// containerd whose answer nobody waits for may still take effect after
// everything was undone. All of it takes a tenth of a second.
func (i *instance) start(ctx context.Context, root *rootfs, h *handler, limits sandbox.Limits) error {
	caller := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTimeout)
	defer cancel()
	var err error
	if i.ids, err = takeRange(i.rt.cfg.SubIDBase, i.cgroup); err != nil {
		return err
	}
	if i.rt.shims != nil && h.shim == shimRuntime {
		if i.seat, err = i.rt.shims.sit(ctx); err != nil {
			return err
		}
	}
	container, err := i.record(root, h, limits)
	if err != nil {
		return err
	}
	if _, err := i.rt.client.ContainerService().Create(ctx, container); err != nil {
		return wrap("create container", err)
	}
	i.recorded = true
	failpoint.Hit(failpoint.Recorded)

	dir := i.rt.sandboxDir(i.id)
	if err := mkdirWalkable(dir); err != nil {
		return err
	}
	size := limits.Disk
	if i.cells {
		size = cellHostDisk
	}
	if i.disk, err = makeDisk(filepath.Join(dir, "disk"), size, i.ids.base); err != nil {
		return err
	}
	userns, err := i.rt.userns.of(i.ids)
	if err != nil {
		return err
	}
	if i.root, err = mountRoot(i.rt.rootPath(i.id), root.overlay, userns); err != nil {
		return err
	}
	failpoint.Hit(failpoint.Mounted)
	if i.stdio, err = makeStdio(dir); err != nil {
		return err
	}
	if err := i.createTask(ctx); err != nil {
		return err
	}
	failpoint.Hit(failpoint.Tasked)
	if err := i.cgroup.boundSockets(); err != nil {
		return err
	}
	if err := i.stdio.connected(); err != nil {
		return err
	}
	if _, err := i.rt.client.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: i.id}); err != nil {
		return wrap("start task", err)
	}
	if caller.Err() != nil {
		return fmt.Errorf("containerd: start %s: %w", i.id, context.Cause(caller))
	}
	return nil
}

// record is the container as containerd will know it.
func (i *instance) record(root *rootfs, h *handler, limits sandbox.Limits) (containers.Container, error) {
	parts := specParts{
		limits: limits, ids: i.ids, root: i.rt.rootPath(i.id), disk: &disk{path: filepath.Join(i.rt.sandboxDir(i.id), "disk")},
		cgroup: i.cgroup, seccomp: i.rt.profile, apparmor: i.rt.apparmor, cells: i.cells,
		secrets: i.secrets,
	}
	if i.cells {
		parts.seccomp, parts.apparmor = i.rt.cellProfile, cellAppArmor
	}
	spec, err := typeurl.MarshalAny(h.spec(parts))
	if err != nil {
		return containers.Container{}, fmt.Errorf("containerd: encode spec: %w", err)
	}
	info, err := h.info(i.rt)
	if err != nil {
		return containers.Container{}, err
	}
	now := time.Now()
	return containers.Container{
		ID:          i.id,
		SandboxID:   i.seat.shimID(),
		Image:       root.image,
		Runtime:     info,
		Spec:        spec,
		Snapshotter: snapshotter,
		SnapshotKey: root.view,
		Labels: map[string]string{
			labelOwner:   i.rt.cfg.Owner,
			labelCreated: now.Format(time.RFC3339Nano),
			labelExpires: now.Add(i.rt.cfg.Expiry).Format(time.RFC3339Nano),
			labelRange:   i.ids.label(),
			labelGroup:   i.cgroup.path,
		},
	}, nil
}

// createTask makes the processes, up to the point where the agent would run.
func (i *instance) createTask(ctx context.Context) error {
	i.tasked = true // even when the answer gets lost
	res, err := i.rt.client.TaskService().Create(ctx, &tasks.CreateTaskRequest{
		ContainerID: i.id,
		Stdin:       i.stdio.inPath(),
		Stdout:      i.stdio.outPath(),
		Stderr:      os.DevNull, // the agent has no use for it

		RuntimePath:    i.seat.runtimePath(),
		TaskApiAddress: i.seat.address(),
		TaskApiVersion: shimVersion,
	})
	if err != nil {
		return wrap("create task", err)
	}
	i.seat.taskMade()
	return i.adoptInit(int(res.Pid))
}

// adoptInit keeps a handle on the sandbox's first process while it cannot have
// been reaped.
func (i *instance) adoptInit(pid int) error {
	p, err := openPID(pid)
	if err != nil {
		return fmt.Errorf("containerd: open first process: %w", err)
	}
	i.init = p
	return nil
}
