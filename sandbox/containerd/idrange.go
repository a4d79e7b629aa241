package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// rangeSize is how many user and group ids one sandbox has.
const rangeSize = 65536

// rangesDir holds one lock file per range, for all fleets of the machine: two
// sandboxes of two fleets must not share ids either.
var rangesDir = filepath.Join(runBase, "ids")

// idRange is the range of host ids of one sandbox, while its file is locked.
//
// The file names the sandbox's cgroup. A range is free when nobody holds its
// lock *and* that cgroup is gone: after a kill -9 the kernel drops the lock at
// once, but the sandbox may live until it is swept, and its ids with it.
type idRange struct {
	n    int
	base uint32
	file *os.File
}

// takeRange finds a free range, locks it and writes down for whom.
func takeRange(base uint32, cg cgroup) (*idRange, error) {
	if err := mkdirWalkable(rangesDir); err != nil {
		return nil, err
	}
	most := int((1<<32 - 1 - uint64(base)) / rangeSize)
	for n := range most {
		r, err := tryRange(base, n)
		if err != nil {
			return nil, err
		}
		if r == nil {
			continue
		}
		if err := r.note(cg.path); err != nil {
			r.release()
			return nil, err
		}
		return r, nil
	}
	return nil, fmt.Errorf("containerd: all %d id ranges above %d are in use", most, base)
}

// tryRange returns nil when range n is taken.
func tryRange(base uint32, n int) (*idRange, error) {
	f, err := os.OpenFile(rangePath(base, n), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("containerd: open id range: %w", err)
	}
	r := &idRange{n: n, base: base + uint32(n)*rangeSize, file: f}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("containerd: lock id range: %w", err)
	}
	last, err := os.ReadFile(f.Name())
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("containerd: read id range: %w", err)
	}
	if len(last) > 0 && (cgroup{path: string(last)}).exists() {
		_ = f.Close()
		return nil, nil
	}
	return r, nil
}

func (r *idRange) note(text string) error {
	if err := r.file.Truncate(0); err != nil {
		return fmt.Errorf("containerd: note id range: %w", err)
	}
	if _, err := r.file.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("containerd: note id range: %w", err)
	}
	return nil
}

// release gives the range back. The note stays: if the cgroup should still be
// there, the range is not free.
func (r *idRange) release() { _ = r.file.Close() }

// label is how a container's record names its range.
func (r *idRange) label() string {
	return fmt.Sprintf("%d:%d", r.base-uint32(r.n)*rangeSize, r.n)
}

func (r *idRange) mapping() []specs.LinuxIDMapping {
	return []specs.LinuxIDMapping{{ContainerID: 0, HostID: r.base, Size: rangeSize}}
}

// rangeHeld tells whether a living worker holds the range that a label names,
// for the sandbox in cg. When that sandbox is dead, somebody else may have the
// range by now.
func rangeHeld(label string, cg cgroup) bool {
	base, n, ok := parseRange(label)
	if !ok {
		return false
	}
	f, err := os.Open(rangePath(base, n))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	if !errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return false
	}
	holder, err := os.ReadFile(f.Name())
	return err != nil || string(holder) == cg.path
}

func parseRange(label string) (base uint32, n int, ok bool) {
	first, second, found := strings.Cut(label, ":")
	b, err1 := strconv.ParseUint(first, 10, 32)
	n, err2 := strconv.Atoi(second)
	return uint32(b), n, found && err1 == nil && err2 == nil && n >= 0
}

func rangePath(base uint32, n int) string {
	return filepath.Join(rangesDir, fmt.Sprintf("%d-%d", base, n))
}
