package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
)

// cgroupV2 is the unified hierarchy: one tree, whose controllers each group
// hands down to those below it.
type cgroupV2 struct{}

func (cgroupV2) dir(path string) string { return filepath.Join(cgroupRoot, path) }

func (v cgroupV2) dirs(path string) []string {
	if dir := v.dir(path); exists(dir) {
		return []string{dir}
	}
	return nil
}

func (v cgroupV2) procDirs(path string) []string { return v.dirs(path) }

func (v cgroupV2) usage(path string, files *counters) (sandbox.Usage, error) {
	var u sandbox.Usage
	dir := v.dir(path)
	// oom counts tries, of which some end well; oom_kill counts the dead.
	events, err := files.read(filepath.Join(dir, "memory.events"))
	if err != nil {
		return u, fmt.Errorf("containerd: read counters: %w", err)
	}
	u.OOMKills = keyed(events, "oom_kill")
	u.PeakMemory = files.int(filepath.Join(dir, "memory.peak"))
	u.PidsRefused = files.keyed(filepath.Join(dir, "pids.events"), "max")
	u.CPU = time.Duration(files.keyed(filepath.Join(dir, "cpu.stat"), "usage_usec")) * time.Microsecond
	return u, nil
}

// killOnce is one stroke in the kernel, which no fork escapes.
func (v cgroupV2) killOnce(c cgroup, _ []int) error {
	err := os.WriteFile(filepath.Join(v.dir(c.path), "cgroup.kill"), []byte("1"), 0)
	if err == nil || errors.Is(err, os.ErrNotExist) && !c.exists() {
		return nil
	}
	return fmt.Errorf("containerd: kill group: %w", err)
}

// resetPeak uses that a write to memory.peak starts a new count for the file
// it was written through, and for no other reader. Kernels before 6.12 refuse
// the write, those before 5.19 have no such file.
func (v cgroupV2) resetPeak(path string, _ *counters) (*peak, error) {
	file, err := os.OpenFile(filepath.Join(v.dir(path), "memory.peak"), os.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		if _, err = file.WriteString("reset"); err == nil {
			return &peak{file: file}, nil
		}
		_ = file.Close()
	}
	if dir := v.dir(path); !exists(dir) {
		return nil, fmt.Errorf("containerd: reset peak of memory: %w", err)
	}
	return &peak{}, nil
}
