package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// shim is one running shim process, which serves one sandbox.
type shim struct {
	pid           int
	id, namespace string
}

// shimsOf finds the running shims of the containerd at address. They are
// children of init, so nothing but their command line tells whose they are.
func shimsOf(address string) ([]shim, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("containerd: look for shims: %w", err)
	}
	var shims []shim
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, ok := shimAt(pid, address); ok {
			shims = append(shims, s)
		}
	}
	return shims, nil
}

// shimAt reads whether pid is a shim of the containerd at address. A process
// that ended meanwhile is none.
func shimAt(pid int, address string) (shim, bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return shim{}, false
	}
	args := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
	if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim-") {
		return shim{}, false
	}
	flags := map[string]string{}
	for i := 1; i+1 < len(args); i++ {
		if name, ok := strings.CutPrefix(args[i], "-"); ok {
			flags[strings.TrimPrefix(name, "-")] = args[i+1]
		}
	}
	s := shim{pid: pid, id: flags["id"], namespace: flags["namespace"]}
	return s, flags["address"] == address && s.id != ""
}

// kill ends the shim if it is still the same process.
func (s shim) kill(address string) error {
	fd, err := unix.PidfdOpen(s.pid, 0)
	if err != nil {
		return nil //nolint:nilerr // it is gone
	}
	p := &process{pid: s.pid, fd: fd}
	defer p.close()
	if now, ok := shimAt(s.pid, address); !ok || now != s {
		return nil
	}
	if err := p.signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("containerd: end shim %d of %s: %w", s.pid, s.id, err)
	}
	if !p.wait(5 * time.Second) {
		return fmt.Errorf("containerd: shim %d of %s does not die", s.pid, s.id)
	}
	return nil
}
