package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// errNoPrey says that there is no such process at this moment.
var errNoPrey = errors.New("chaos: no such process runs")

// killContainerd kills the containerd of the worker with that state.
func killContainerd(state string) error {
	config := filepath.Join(state, "containerd", "config.toml")
	return killOne(0, func(argv []string) bool {
		return filepath.Base(argv[0]) == "containerd" && slices.Contains(argv, config)
	})
}

var socket = regexp.MustCompile(`address = "(/[^"]+\.sock)"`)

// killShim kills one of the shims of the worker with that state.
func killShim(state string, which int) error {
	config, err := os.ReadFile(filepath.Join(state, "containerd", "config.toml"))
	if err != nil {
		return err
	}
	m := socket.FindSubmatch(config)
	if m == nil {
		return fmt.Errorf("chaos: %s names no socket", state)
	}
	address := string(m[1])
	return killOne(which, func(argv []string) bool {
		return strings.HasPrefix(filepath.Base(argv[0]), "containerd-shim-") && slices.Contains(argv, address)
	})
}

// killOne kills one of the processes whose command line matches, the oldest
// first.
func killOne(which int, match func(argv []string) bool) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(raw) == 0 {
			continue // it has ended, or is the kernel's
		}
		if match(strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return errNoPrey
	}
	slices.Sort(pids)
	return syscall.Kill(pids[which%len(pids)], syscall.SIGKILL)
}
