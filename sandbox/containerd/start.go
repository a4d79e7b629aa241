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
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/typeurl/v2"

	"github.com/toolfleet/toolfleet/sandbox"
)

// shimRuntime is containerd's name of the runtime that all handlers built so
// far go through.
const shimRuntime = "io.containerd.runc.v2"

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
	opts, err := r.handler(spec.Runtime)
	if err != nil {
		return nil, err
	}
	if spec.Isolation != "" && spec.Isolation != "container" {
		return nil, fmt.Errorf("containerd: isolation %q is not supported yet; use container", spec.Isolation)
	}
	root, err := r.ensure(ctx, spec.Image, spec.Pull)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("containerd: start %s: %w", id, context.Cause(ctx))
	}
	i := &instance{id: id, rt: r, cgroup: r.sandboxGroup(id)}
	if err := i.start(ctx, root, opts, withDefaults(spec.Limits)); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		return nil, errors.Join(err, i.Close(undo))
	}
	return i, nil
}

// handler turns a runtime handler's name into the shim's options.
func (r *Runtime) handler(name string) (*options.Options, error) {
	if name != "" && name != "runc" {
		return nil, fmt.Errorf("containerd: runtime %q is not supported yet; use runc", name)
	}
	opts := &options.Options{Root: filepath.Join(r.dir, "runc")}
	if r.cfg.BinDir != "" {
		opts.BinaryName = filepath.Join(r.cfg.BinDir, "runc")
	}
	return opts, nil
}

// start goes step by step; each step leaves in i what Close has to undo.
//
// A cancellation is heeded before and after, but not in between: a message to
// containerd whose answer nobody waits for may still take effect after
// everything was undone. All of it takes a tenth of a second.
func (i *instance) start(ctx context.Context, root *rootfs, opts *options.Options, limits sandbox.Limits) error {
	caller := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTimeout)
	defer cancel()
	var err error
	if i.ids, err = takeRange(i.rt.cfg.SubIDBase, i.cgroup); err != nil {
		return err
	}
	container, err := i.record(root, opts, limits)
	if err != nil {
		return err
	}
	if _, err := i.rt.client.ContainerService().Create(ctx, container); err != nil {
		return wrap("create container", err)
	}
	i.recorded = true

	dir := i.rt.sandboxDir(i.id)
	if err := mkdirWalkable(dir); err != nil {
		return err
	}
	if i.disk, err = makeDisk(filepath.Join(dir, "disk"), limits.Disk, i.ids.base); err != nil {
		return err
	}
	if i.stdio, err = makeStdio(dir); err != nil {
		return err
	}
	if err := i.createTask(ctx, root); err != nil {
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
func (i *instance) record(root *rootfs, opts *options.Options, limits sandbox.Limits) (containers.Container, error) {
	spec, err := typeurl.MarshalAny(ociSpec(specParts{
		limits: limits, ids: i.ids, disk: &disk{path: filepath.Join(i.rt.sandboxDir(i.id), "disk")},
		cgroup: i.cgroup, seccomp: i.rt.profile, apparmor: i.rt.apparmor,
	}))
	if err != nil {
		return containers.Container{}, fmt.Errorf("containerd: encode spec: %w", err)
	}
	runtimeOptions, err := typeurl.MarshalAny(opts)
	if err != nil {
		return containers.Container{}, fmt.Errorf("containerd: encode options: %w", err)
	}
	now := time.Now()
	return containers.Container{
		ID:          i.id,
		Image:       root.image,
		Runtime:     containers.RuntimeInfo{Name: shimRuntime, Options: runtimeOptions},
		Spec:        spec,
		Snapshotter: snapshotter,
		SnapshotKey: root.view,
		Labels: map[string]string{
			labelOwner:   i.rt.cfg.Owner,
			labelCreated: now.Format(time.RFC3339Nano),
			labelExpires: now.Add(i.rt.cfg.Expiry).Format(time.RFC3339Nano),
			labelRange:   i.ids.label(),
		},
	}, nil
}

// createTask makes the processes, up to the point where the agent would run.
func (i *instance) createTask(ctx context.Context, root *rootfs) error {
	i.tasked = true // even when the answer gets lost
	res, err := i.rt.client.TaskService().Create(ctx, &tasks.CreateTaskRequest{
		ContainerID: i.id,
		Rootfs:      i.rootMounts(root.mounts),
		Stdin:       i.stdio.inPath(),
		Stdout:      i.stdio.outPath(),
		Stderr:      os.DevNull, // the agent has no use for it
	})
	if err != nil {
		return wrap("create task", err)
	}
	return i.adoptInit(int(res.Pid))
}

// rootMounts maps the ids of the image's files into the sandbox's range, by an
// idmapped mount: nothing is copied or changed on the disk.
func (i *instance) rootMounts(shared []mount.Mount) []*types.Mount {
	ids := fmt.Sprintf("0:%d:%d", i.ids.base, rangeSize)
	var out []*types.Mount
	for _, m := range shared {
		out = append(out, &types.Mount{
			Type: m.Type, Source: m.Source, Target: m.Target,
			Options: append(slices.Clone(m.Options), "uidmap="+ids, "gidmap="+ids),
		})
	}
	return out
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
