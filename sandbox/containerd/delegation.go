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

// parent is the group that was given to the worker to divide: that of its
// container, or of its systemd unit. Its sandboxes then count towards the
// group's limits and go when it is removed. Otherwise it is the root, as for a
// worker that was started in a shell; whoever manages the shell's group may
// take controllers away at any time.
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
	// systemd marks what it delegates, and with DelegateSubgroup= it puts the
	// unit's process one below. Without that we must not divide the unit's
	// group: a killed worker leaves sandboxes there, and with controllers
	// handed down to them the kernel would let no successor in.
	if above := path.Dir(own); v.delegated(above) || path.Base(own) == ownLeaf {
		return above
	}
	if exists("/run/systemd/system") {
		return "/"
	}
	return own // that of a container, which is made anew when it starts again
}

func (v cgroupV2) delegated(group string) bool {
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
		return fmt.Errorf("containerd: hand controllers of %s down (are they handed down to it?): %w", dir, err)
	}
	return nil
}
