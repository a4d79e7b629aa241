package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroup is one group of processes by its path below the mount points, such
// as /toolfleet/1a2b/call-7. On v1 it has one directory per controller.
//
// Its files are read and written directly: it takes microseconds, while asking
// the shim takes three messages and says nothing about a group without a task.
type cgroup struct {
	path string
	// counters are kept by whoever reads them more than once.
	counters *counters
	// peak is nil until resetPeak, see there.
	peak *peak
}

// cgroupVersion is what differs between v1 and v2.
type cgroupVersion interface {
	// dirs are the group's directories that exist.
	dirs(path string) []string
	// procDirs are those that have to be read to find all of its processes.
	procDirs(path string) []string
	// usage reads the counters that tell how a tool ended.
	usage(path string, files *counters) (sandbox.Usage, error)
	// killOnce kills what is in the group now, which is at least pids.
	killOnce(c cgroup, pids []int) error
	// resetPeak begins a new peak of memory. Nil says that the kernel's own
	// counter was set back.
	resetPeak(path string, files *counters) (*peak, error)
	// parent is the path below which groups of ours may be made.
	parent() (string, error)
}

// hierarchy is this machine's version.
var hierarchy = sync.OnceValue(func() cgroupVersion {
	if cgroupMode() == "v2" {
		return cgroupV2{}
	}
	return cgroupV1{}
})

// peak is how the most memory since a reset is read where the kernel counts it
// for each open file.
type peak struct {
	file *os.File // nil: the kernel cannot count anew, the peak is unknown
}

// read returns the peak in bytes, 0 when it is unknown.
func (p *peak) read() (int64, error) {
	if p.file == nil {
		return 0, nil
	}
	var buf [32]byte
	n, err := p.file.ReadAt(buf[:], 0)
	if n == 0 {
		return 0, fmt.Errorf("containerd: read peak of memory: %w", err)
	}
	return strconv.ParseInt(strings.TrimSpace(string(buf[:n])), 10, 64)
}

// close may be called more than once, and on nil.
func (p *peak) close() {
	if p != nil && p.file != nil {
		_ = p.file.Close()
	}
}

func (c cgroup) dirs() []string { return hierarchy().dirs(c.path) }

// exists tells whether any of it is left.
func (c cgroup) exists() bool { return len(c.dirs()) > 0 }

// usage reads the counters that tell how a tool ended.
func (c cgroup) usage() (sandbox.Usage, error) {
	u, err := hierarchy().usage(c.path, c.counters)
	if err == nil && c.peak != nil {
		u.PeakMemory, err = c.peak.read()
	}
	return u, err
}

// resetPeak makes usage count the peak of memory from here on, so that a group
// in which several calls run one after another tells each its own. Kernels
// that cannot (v2 before 6.12) leave it unknown, 0: the peak of an earlier
// call would be a lie.
func (c *cgroup) resetPeak() error {
	fresh, err := hierarchy().resetPeak(c.path, c.counters)
	if err != nil {
		return err
	}
	c.peak.close()
	c.peak = fresh
	return nil
}

// procs lists the processes in the group and below it.
func (c cgroup) procs() ([]int, error) {
	var pids []int
	for _, dir := range hierarchy().procDirs(c.path) {
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return nil //nolint:nilerr // a group that goes away has no processes
			}
			here, err := procsAt(path)
			pids = append(pids, here...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("containerd: list processes of %s: %w", c.path, err)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// procsAt lists the processes of one directory. One that is gone has none.
func procsAt(dir string) ([]int, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for line := range strings.Lines(string(raw)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// kill ends every process in the group and returns when none is left.
func (c cgroup) kill(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		pids, err := c.procs()
		if err != nil || len(pids) == 0 {
			return err
		}
		if err := hierarchy().killOnce(c, pids); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("containerd: %d processes of %s do not die: %w", len(pids), c.path, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// remove deletes the group's directories, which must hold no process.
func (c cgroup) remove(ctx context.Context) error {
	var errs []error
	for _, dir := range c.dirs() {
		errs = append(errs, removeGroup(ctx, dir))
	}
	c.peak.close()
	if c.counters != nil {
		c.counters.close()
	}
	return errors.Join(errs...)
}

// removeGroup removes dir and the groups below it.
func removeGroup(ctx context.Context, dir string) error {
	children, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range children {
		if e.IsDir() {
			if err := removeGroup(ctx, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		// The kernel needs a moment after the last process.
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("containerd: remove group %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("containerd: remove group %s: %w: %w", dir, err, context.Cause(ctx))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// children lists the names of the groups below c.
func (c cgroup) children() []string {
	var names []string
	for _, dir := range c.dirs() {
		names = append(names, childDirs(dir)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
