package containerd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
)

// mostRoom is how much of the disk images leave free: a twentieth, at most this
// many bytes. An image may unpack to any size, and the disk has other users.
const mostRoom = 1 << 30

// roomInterval is how often the disk is looked at while it is filled.
const roomInterval = 50 * time.Millisecond

var errNoRoom = errors.New("containerd: the disk runs full")

// withRoom runs do, which brings the image ref to the disk, and ends it when the
// disk runs full. containerd passes the kernel's error on as a text only, so the
// disk is looked at; where images are kept is known for a containerd of our own.
func (r *Runtime) withRoom(ctx context.Context, ref string, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watch sync.WaitGroup
	ended, wasFull := make(chan struct{}), false
	watch.Go(func() {
		tick := time.NewTicker(roomInterval)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				if r.full() {
					wasFull = true
					cancel(errNoRoom)
					return
				}
			}
		}
	})
	err := do(ctx)
	close(ended)
	watch.Wait()
	if err == nil {
		return nil
	}
	if wasFull {
		detail := err.Error()
		if known, ok := errors.AsType[*sandbox.ImageError](err); ok {
			detail = known.Detail
		}
		return &sandbox.ImageError{Image: ref, Fault: sandbox.ImageNoRoom, Detail: oneLine(detail)}
	}
	return err
}

// full reports whether the disk has no more room for images.
func (r *Runtime) full() bool {
	if r.cfg.StateDir == "" {
		return false
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(r.cfg.StateDir, &fs); err != nil {
		return false
	}
	return int64(fs.Bavail) < min(int64(fs.Blocks)/20, mostRoom/fs.Bsize)
}

// ImagesRoot is the directory in which containerd keeps the layers of images, and
// what sandboxes write over them, as containerd itself names it: on a host whose
// files this process may not see.
func (r *Runtime) ImagesRoot(ctx context.Context) (string, error) {
	found, err := r.client.IntrospectionService().Plugins(ctx, "id=="+snapshotter)
	if err != nil {
		return "", wrap("ask where images are", err)
	}
	for _, p := range found.GetPlugins() {
		if root := p.GetExports()["root"]; root != "" {
			return root, nil
		}
	}
	return "", fmt.Errorf("containerd: %w: the snapshotter %s has no root", sandbox.ErrUnavailable, snapshotter)
}
