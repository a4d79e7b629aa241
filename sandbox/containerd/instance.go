package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"

	"github.com/toolfleet/toolfleet/sandbox"
)

// instance is one sandbox. It implements [sandbox.Instance].
type instance struct {
	id      string
	rt      *Runtime
	cgroup  cgroup
	cells   bool // it serves many calls, see the agent's cells
	secrets bool // it has a place for secret files

	// What Start made so far, and Close has to undo.
	ids      *idRange
	seat     *seat // nil: a shim of its own
	recorded bool  // there is a container record
	tasked   bool  // there may be a task
	disk     *disk
	root     *rootMount
	stdio    *stdio
	init     *process

	mu    sync.Mutex // guards usage, seen; held while the cgroup is read or removed
	usage sandbox.Usage
	seen  bool

	killed atomic.Bool // by us, so that the end of the stream is no riddle

	closing sync.Mutex // one Close at a time
	closed  bool
}

var _ sandbox.Instance = (*instance)(nil)

func (i *instance) ID() string { return i.id }

// Read reads what the agent writes. After Kill or Close it returns io.EOF or
// os.ErrClosed.
//
// The stream goes through the shim and ends with it too. That tells nothing
// about the tool, while an agent that goes away by itself does, so the two are
// told apart.
func (i *instance) Read(p []byte) (int, error) {
	n, err := i.stdio.out.Read(p)
	if errors.Is(err, io.EOF) && !i.killed.Load() && i.shimDied() {
		err = fmt.Errorf("containerd: the shim of %s died: %w", i.id, sandbox.ErrLost)
	}
	return n, err
}

// shimDeath is how long a shim may take to be seen dead once its files are
// closed. It is waited for when an agent goes away by itself, which none does.
const shimDeath = 200 * time.Millisecond

// shimDied tells whether the sandbox's shim has died or is about to.
func (i *instance) shimDied() bool {
	if i.seat != nil {
		return i.seat.shim.proc.wait(shimDeath)
	}
	shim, err := i.rt.findShim(i.id)
	if err != nil {
		return true
	}
	defer shim.close()
	return shim.wait(shimDeath)
}

// Write writes to the agent. A dead agent is EPIPE.
func (i *instance) Write(p []byte) (int, error) { return i.stdio.in.Write(p) }

// Kill ends every process of the sandbox and returns when none is left.
//
// The first process is killed by us and not through containerd: the kernel
// then kills its pid namespace and reports the end after the last process of
// it is gone, while `runc kill` would start two programs to send one signal.
// What is left in the cgroup nonetheless is killed by the cgroup.
//
// Whoever still writes to the agent is let go first: it may not have read for long,
// and its shim holds the other end open beyond its death.
func (i *instance) Kill(ctx context.Context) error {
	i.killed.Store(true)
	_ = i.stdio.in.SetWriteDeadline(time.Unix(1, 0)) // fails when it is closed
	if i.init != nil {
		if err := i.init.kill(ctx); err != nil {
			return err
		}
	}
	if err := i.cgroup.kill(ctx); err != nil {
		return err
	}
	i.observe()
	return nil
}

// Usage reads the kernel's counters, or returns the last known ones when the
// cgroup is gone.
func (i *instance) Usage(context.Context) (sandbox.Usage, error) {
	i.observe()
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.seen {
		return i.usage, fmt.Errorf("containerd: %w: no counters of %s", sandbox.ErrNotFound, i.id)
	}
	return i.usage, nil
}

// observe keeps the newest counters: the cgroup goes with the task.
func (i *instance) observe() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if u, err := i.cgroup.usage(); err == nil {
		i.usage, i.seen = u, true
	}
}

// Close removes all of the sandbox. Steps do not stop at a failed one, and a
// thing that is gone already is no failure. It may be called again if it
// failed.
func (i *instance) Close(ctx context.Context) error {
	i.closing.Lock()
	defer i.closing.Unlock()
	if i.closed {
		return nil
	}
	// Without a record nothing was made, and what is there under our id is
	// somebody else's.
	var err error
	if i.recorded {
		err = i.remove(ctx)
	}
	if seatErr := i.giveUpSeat(ctx, err == nil); err == nil {
		err = seatErr
	}
	i.closed = err == nil
	// Whatever is left is now for the next sweep, which lets be what is held.
	// The ids stay taken for as long as the cgroup is there.
	if i.ids != nil {
		i.ids.release()
		i.ids = nil
	}
	if i.init != nil && i.closed {
		i.init.close()
		i.init = nil
	}
	return err
}

// remove undoes Start backwards. The record goes last: as long as anything is
// left, so is the note that tells a sweep about it.
func (i *instance) remove(ctx context.Context) error {
	errs := []error{i.Kill(ctx)}
	if i.stdio != nil {
		i.stdio.close()
	}
	if i.tasked {
		errs = append(errs, i.seat.leave(ctx), i.rt.deleteTask(ctx, i.id))
	}
	errs = append(errs, i.cgroup.remove(ctx))
	if i.disk != nil {
		errs = append(errs, i.disk.remove())
	}
	if i.root != nil {
		errs = append(errs, i.root.remove())
	}
	errs = append(errs, i.rt.removeDir(i.id))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return wrapEnd("delete container", i.rt.client.ContainerService().Delete(ctx, i.id))
}

// giveUpSeat leaves the shared shim and removes it when nobody sits there any
// more. A shim that still has a task, since the removal failed, is left to the
// sweep with it.
func (i *instance) giveUpSeat(ctx context.Context, removed bool) error {
	if i.seat == nil {
		return nil
	}
	if err := i.seat.leave(ctx); err != nil {
		return err
	}
	i.seat.free()
	switch {
	case !i.seat.shim.unused():
		return nil
	case !removed:
		return i.seat.shim.abandon()
	}
	return i.rt.dispose(ctx, i.seat.shim)
}

// deleteTask removes a task whose processes are dead, with its shim. It waits
// until the shim has seen their end: before that it refuses to delete, with an
// error that cannot be told from others.
func (r *Runtime) deleteTask(ctx context.Context, id string) error {
	_, err := r.client.TaskService().Wait(ctx, &tasks.WaitRequest{ContainerID: id})
	if err := wrapEnd("wait for the end of task", err); err != nil {
		return err
	}
	_, err = r.client.TaskService().Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	return wrapEnd("delete task", err)
}

// removeDir removes the directories of a sandbox whose processes are dead and
// in which nothing is mounted. runc removes its own, unless it was killed
// between making it and telling the shim of the container.
func (r *Runtime) removeDir(id string) error {
	if err := errors.Join(os.RemoveAll(r.sandboxDir(id)), os.RemoveAll(r.runcDir(id)), r.removeRunscState(id)); err != nil {
		return fmt.Errorf("containerd: remove directory of sandbox: %w", err)
	}
	return nil
}
