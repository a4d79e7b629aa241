package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// supervise starts containerd again when it dies, with growing pauses, and
// keeps its log short. Sandboxes survive a restart: their shims go on, and the
// new containerd finds them.
func (d *Daemon) supervise(ctx context.Context) {
	defer close(d.done)
	const shortest, longest = 100 * time.Millisecond, 10 * time.Second
	pause := shortest
	for {
		began := time.Now()
		if stopped := d.watch(); stopped {
			return
		}
		if time.Since(began) > time.Minute {
			pause = shortest
		}
		d.log.Error("containerd died, starting it again", "log", d.paths.log, "pause", pause)
		select {
		case <-d.stop:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
		if err := d.respawn(ctx); err != nil {
			d.log.Error("containerd does not start", "error", err)
		}
	}
}

// respawn starts containerd again, on a context that outlives the start of the
// daemon.
func (d *Daemon) respawn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return d.spawn(ctx)
}

// watch returns when the process has ended or the daemon is stopped.
func (d *Daemon) watch() (stopped bool) {
	p, _ := d.current()
	for {
		ended := p.wait(250 * time.Millisecond)
		select {
		case <-d.stop: // asked first: Stop is what may have ended it
			return true
		default:
		}
		if ended {
			return false
		}
		d.trimLog()
	}
}

// trimLog empties a log that grew too long. containerd appends, so it goes on
// at the new end.
func (d *Daemon) trimLog() {
	info, err := os.Stat(d.paths.log)
	if err != nil || info.Size() < maxLog {
		return
	}
	if err := os.Truncate(d.paths.log, 0); err != nil {
		d.log.Warn("containerd log not trimmed", "error", err)
	}
}

// Stop ends containerd: SIGTERM, then SIGKILL, then whatever is still mounted
// below its directories is unmounted. Sandboxes should be closed before; what
// is left of them is for the next [Runtime.Sweep]. It may be called more than
// once.
func (d *Daemon) Stop(ctx context.Context) error {
	d.once.Do(func() { d.err = d.shutdown(ctx) })
	return d.err
}

func (d *Daemon) shutdown(ctx context.Context) error {
	close(d.stop)
	d.mu.Lock() // so that supervise does not replace it just now
	err := d.proc.signal(unix.SIGTERM)
	d.mu.Unlock()
	if err != nil {
		d.log.Warn("containerd not told to stop", "error", err)
	}
	grace := stopTimeout
	if t, ok := ctx.Deadline(); ok {
		grace = min(grace, max(0, time.Until(t)))
	}
	<-d.done
	defer d.unlock()
	if err := d.endProcess(grace); err != nil {
		return err
	}
	err = errors.Join(
		unmountBelow(d.paths.run),
		unmountBelow(d.paths.dir),
		d.markClean(),
	)
	if err != nil {
		return err
	}
	// Shims that still run have their bundles here, so it stays in that case.
	left, err := shimsOf(d.paths.socket)
	if err != nil || len(left) > 0 {
		return err
	}
	return os.RemoveAll(d.paths.run)
}

// endProcess ends containerd and reaps it. Precondition: supervise has ended.
func (d *Daemon) endProcess(grace time.Duration) error {
	p, reaped := d.current()
	defer p.close()
	if err := p.end(grace); err != nil {
		return err
	}
	if reaped != nil {
		<-reaped
	}
	return nil
}

// markClean makes good for no_sync: everything is on the disk, and says so.
func (d *Daemon) markClean() error {
	dir, err := os.Open(d.paths.dir)
	if err != nil {
		return fmt.Errorf("containerd: sync state: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("containerd: sync state: %w", err)
	}
	return os.WriteFile(d.paths.clean, nil, 0o600)
}

// unmountBelow unmounts everything mounted at dir or below it, the innermost
// first, and nothing else.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range slices.Backward(points) {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// Somebody else, such as a shim that ends, may be faster.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("containerd: unmount %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

// mountsBelow lists the mount points at dir and below, outer ones first.
func mountsBelow(dir string) ([]string, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("containerd: read mounts: %w", err)
	}
	var points []string
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescapeMount(fields[4])
		if point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	return points, nil
}

// unescapeMount undoes the octal escapes of /proc/self/mountinfo.
var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func unescapeMount(s string) string { return mountEscapes.Replace(s) }
