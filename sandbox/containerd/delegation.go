package containerd

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ownLeaf is the group that the worker moves to when it divides its own: on
// v2 a group either has processes or hands controllers down to its children.
const ownLeaf = "toolfleet-self"

// controllersV2 are those that bound a sandbox.
const controllersV2 = "+cpu +memory +pids"

// aboveSandboxes is the path of the group named by [Config.CgroupParent].
func aboveSandboxes(name string) (string, error) {
	if path.IsAbs(name) {
		return path.Clean(name), nil
	}
	parent, err := hierarchy().parent()
	return path.Join(parent, name), err
}

// parent is the worker's own group where that was given to it to divide: a
// systemd unit with Delegate=yes, or a container. Its sandboxes then count
// towards its limits and go when it is removed. Otherwise it is the root, as
// for a worker that was started in a shell; whoever manages the shell's group
// may take controllers away at any time.
func (v cgroupV2) parent() (string, error) {
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("containerd: find own cgroup: %w", err)
	}
	given := v.given(unifiedPath(string(raw)))
	if !exists(filepath.Join(v.dir(given), "cgroup.type")) {
		return given, nil // the machine's root, which may have both
	}
	return given, v.divide(given)
}

// unifiedPath is the path on v2 in a file such as /proc/self/cgroup.
func unifiedPath(file string) string {
	for line := range strings.Lines(file) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return p
		}
	}
	return "/"
}

// given is the group, at own or right above, that a worker in own may divide.
func (v cgroupV2) given(own string) string {
	if strings.HasPrefix(own, "/..") {
		return "/" // out of sight, beside the root of our cgroup namespace
	}
	// systemd marks what it delegates. With DelegateSubgroup= it puts the
	// unit's process one below, as we do.
	for _, group := range []string{own, path.Dir(own)} {
		if v.marked(group) {
			return group
		}
	}
	// In a container there is no systemd to ask, and to disturb.
	if exists("/run/systemd/system") {
		return "/"
	}
	if path.Base(own) == ownLeaf {
		return path.Dir(own)
	}
	return own
}

func (v cgroupV2) marked(group string) bool {
	var value [8]byte
	n, err := unix.Getxattr(v.dir(group), "trusted.delegate", value[:])
	return err == nil && string(value[:n]) == "1"
}

// divide moves the processes of a group to a leaf below it and hands its
// controllers down. More may be forked meanwhile, so it looks until there are
// none.
func (v cgroupV2) divide(group string) error {
	dir := v.dir(group)
	leaf := filepath.Join(dir, ownLeaf)
	for {
		pids, err := procsAt(dir)
		if err != nil {
			return fmt.Errorf("containerd: divide own cgroup: %w", err)
		}
		if len(pids) == 0 {
			break
		}
		if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("containerd: divide own cgroup: %w", err)
		}
		for _, pid := range pids {
			err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("containerd: move process %d to %s: %w", pid, leaf, err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(controllersV2), 0); err != nil {
		return fmt.Errorf("containerd: hand controllers of %s down (does the unit have Delegate=yes?): %w", dir, err)
	}
	return nil
}
