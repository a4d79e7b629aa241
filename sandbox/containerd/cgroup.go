package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroup is one group of processes by its path below the mount points, such
// as /toolfleet/1a2b/call-7. On v1 it has one directory per controller.
//
// The files are read and written directly: it takes microseconds, while asking
// the shim takes three messages and says nothing about a group without a task.
type cgroup struct{ path string }

// controllersV1 are the hierarchies that may hold our groups.
var controllersV1 = []string{"memory", "pids", "cpu", "cpuacct", "cpu,cpuacct", "freezer", "devices", "cpuset", "blkio", "systemd", "unified", "perf_event", "net_cls", "net_prio", "net_cls,net_prio", "hugetlb", "rdma", "misc"}

// dirs are the group's directories that exist.
func (c cgroup) dirs() []string {
	if cgroupMode() == "v2" {
		if dir := filepath.Join(cgroupRoot, c.path); exists(dir) {
			return []string{dir}
		}
		return nil
	}
	var dirs []string
	for _, controller := range controllersV1 {
		// On many machines one hierarchy has two names, one a symbolic link.
		if dir := c.dir(controller); exists(dir) && !isLink(filepath.Join(cgroupRoot, controller)) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}

func (c cgroup) dir(controller string) string {
	if cgroupMode() == "v2" {
		return filepath.Join(cgroupRoot, c.path)
	}
	return filepath.Join(cgroupRoot, controller, c.path)
}

// exists tells whether any of it is left.
func (c cgroup) exists() bool { return len(c.dirs()) > 0 }

// usage reads the counters that tell how a tool ended.
func (c cgroup) usage() (sandbox.Usage, error) {
	if cgroupMode() == "v2" {
		return c.usageV2()
	}
	return c.usageV1()
}

func (c cgroup) usageV2() (sandbox.Usage, error) {
	var u sandbox.Usage
	dir := c.dir("")
	events, err := os.ReadFile(filepath.Join(dir, "memory.events"))
	if err != nil {
		return u, fmt.Errorf("containerd: read counters: %w", err)
	}
	u.OOMKills = keyed(events, "oom_kill")
	u.PeakMemory = readInt(filepath.Join(dir, "memory.peak"))
	u.PidsRefused = readKeyed(filepath.Join(dir, "pids.events"), "max")
	u.CPU = time.Duration(readKeyed(filepath.Join(dir, "cpu.stat"), "usage_usec")) * time.Microsecond
	return u, nil
}

func (c cgroup) usageV1() (sandbox.Usage, error) {
	var u sandbox.Usage
	// oom_kill counts kills. failcnt and under_oom do not: reclaim may have
	// helped, and the moment passes.
	oom, err := os.ReadFile(filepath.Join(c.dir("memory"), "memory.oom_control"))
	if err != nil {
		return u, fmt.Errorf("containerd: read counters: %w", err)
	}
	u.OOMKills = keyed(oom, "oom_kill")
	u.PeakMemory = readInt(filepath.Join(c.dir("memory"), "memory.max_usage_in_bytes"))
	u.PidsRefused = readKeyed(filepath.Join(c.dir("pids"), "pids.events"), "max")
	u.CPU = time.Duration(readInt(filepath.Join(c.dir("cpuacct"), "cpuacct.usage")))
	return u, nil
}

// procs lists the processes in the group and below it.
func (c cgroup) procs() ([]int, error) {
	dirs := c.dirs()
	if cgroupMode() != "v2" {
		// Every hierarchy holds the same processes. The freezer's is the one
		// that the backstop works on.
		dirs = slices.DeleteFunc([]string{c.dir("freezer"), c.dir("memory"), c.dir("pids")}, func(d string) bool { return !exists(d) })
	}
	var pids []int
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return nil //nolint:nilerr // a group that goes away has no processes
			}
			raw, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
				return nil
			}
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(raw)) {
				if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
					pids = append(pids, pid)
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("containerd: list processes of %s: %w", c.path, err)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// kill ends every process in the group and returns when none is left.
func (c cgroup) kill(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		pids, err := c.procs()
		if err != nil || len(pids) == 0 {
			return err
		}
		if err := c.killOnce(pids); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("containerd: %d processes of %s do not die: %w", len(pids), c.path, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// killOnce kills what is there now. v2 does it at one stroke. On v1 the group
// is frozen, so that nobody forks meanwhile, and thawed in the end, because
// frozen processes do not die.
func (c cgroup) killOnce(pids []int) error {
	if cgroupMode() == "v2" {
		err := os.WriteFile(filepath.Join(c.dir(""), "cgroup.kill"), []byte("1"), 0)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("containerd: kill group: %w", err)
	}
	state := filepath.Join(c.dir("freezer"), "freezer.state")
	if exists(state) {
		_ = os.WriteFile(state, []byte("FROZEN"), 0)
		defer func() { _ = os.WriteFile(state, []byte("THAWED"), 0) }()
		if frozen, err := c.procs(); err == nil {
			pids = frozen
		}
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("containerd: kill process of group: %w", err)
		}
	}
	return nil
}

// remove deletes the group's directories, which must hold no process.
func (c cgroup) remove(ctx context.Context) error {
	var errs []error
	for _, dir := range c.dirs() {
		errs = append(errs, removeGroup(ctx, dir))
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
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// keyed reads one value of a file of "key value" lines.
func keyed(raw []byte, key string) int64 {
	for line := range bytes.Lines(raw) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if name == key {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}

func readKeyed(path, key string) int64 {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	return keyed(raw, key)
}

func readInt(path string) int64 {
	n, _ := strconv.ParseInt(readTrim(path), 10, 64)
	return n
}
