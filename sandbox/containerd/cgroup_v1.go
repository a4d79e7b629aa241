package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
)

// cgroupV1 is v1 and hybrid: a tree for each controller, all with the same
// groups.
type cgroupV1 struct{}

// controllersV1 are the hierarchies that may hold our groups.
var controllersV1 = []string{"memory", "pids", "cpu", "cpuacct", "cpu,cpuacct", "freezer", "devices", "cpuset", "blkio", "systemd", "unified", "perf_event", "net_cls", "net_prio", "net_cls,net_prio", "hugetlb", "rdma", "misc"}

func (cgroupV1) dir(controller, path string) string {
	return filepath.Join(cgroupRoot, controller, path)
}

func (v cgroupV1) dirs(path string) []string {
	var dirs []string
	for _, controller := range controllersV1 {
		// On many machines one hierarchy has two names, one a symbolic link.
		if dir := v.dir(controller, path); exists(dir) && !isLink(filepath.Join(cgroupRoot, controller)) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}

// procDirs leaves most hierarchies out, since each holds the same processes.
// The freezer's is the one that the backstop works on.
func (v cgroupV1) procDirs(path string) []string {
	return slices.DeleteFunc([]string{v.dir("freezer", path), v.dir("memory", path), v.dir("pids", path)},
		func(dir string) bool { return !exists(dir) })
}

func (v cgroupV1) usage(path string, files *counters) (sandbox.Usage, error) {
	var u sandbox.Usage
	// oom_kill counts kills. failcnt and under_oom do not: reclaim may have
	// helped, and the moment passes.
	oom, err := files.read(filepath.Join(v.dir("memory", path), "memory.oom_control"))
	if err != nil {
		return u, fmt.Errorf("containerd: read counters: %w", err)
	}
	u.OOMKills = keyed(oom, "oom_kill")
	u.PeakMemory = files.int(v.peakFile(path))
	u.PidsRefused = files.keyed(filepath.Join(v.dir("pids", path), "pids.events"), "max")
	u.CPU = time.Duration(files.int(filepath.Join(v.dir("cpuacct", path), "cpuacct.usage")))
	return u, nil
}

// killOnce freezes the group, so that nobody forks meanwhile, and thaws it in
// the end, because frozen processes do not die.
func (v cgroupV1) killOnce(c cgroup, pids []int) error {
	state := filepath.Join(v.dir("freezer", c.path), "freezer.state")
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

func (v cgroupV1) resetPeak(path string, files *counters) (*peak, error) {
	file, err := files.file(v.peakFile(path))
	if err == nil {
		_, err = file.WriteAt([]byte("0"), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("containerd: reset peak of memory: %w", err)
	}
	return nil, nil
}

func (v cgroupV1) peakFile(path string) string {
	return filepath.Join(v.dir("memory", path), "memory.max_usage_in_bytes")
}

// parent is the root: v1 has no rule against groups there, and in a container
// the root is the container's own group.
func (cgroupV1) parent() (string, error) { return "/", nil }
