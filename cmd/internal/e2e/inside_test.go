//go:build e2e

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// nodeIP is the node's address in its network namespace.
const nodeIP = "10.77.0.1"

// first is the first process of the namespaces. It makes them a machine, starts
// the test in there, and takes in every process that loses its parent, as the
// first one has to: containerd's shims are such.
func first() (int, error) {
	runtime.LockOSThread() // the namespace of cgroups is a thread's
	dir := os.Getenv(dirVar)
	for _, step := range []func(string) error{enterGroups, mounts, network} {
		if err := step(dir); err != nil {
			return 1, err
		}
	}
	if err := os.Setenv(stage, stageInside); err != nil {
		return 1, err
	}
	child, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Files: []*os.File{nil, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 1, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait: %w", err)
		case pid == child.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == child.Pid:
			return 1, fmt.Errorf("the test was ended by %v", status.Signal())
		}
	}
}

// enterGroups moves this process to the run's groups and makes them the roots of
// all that it can see of cgroups.
func enterGroups(dir string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range dirs {
		if err := os.WriteFile(filepath.Join(h, filepath.Base(dir), "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cgroup namespace: %w", err)
	}
	return nil
}

// mount is one mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// mounts gives the node what it would have of its own: /proc and /sys of its
// namespaces, and those directories that its parts write to wherever one puts
// their state. The kubelet wants mounts to be shared.
func mounts(dir string) error {
	groups, err := cgroupMounts()
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the machine's mounts: %w", err)
	}
	if err := unmountBelow("/run"); err != nil {
		return err
	}
	list := []mount{
		{target: "/", flags: unix.MS_REC | unix.MS_SHARED},
		{source: "proc", target: "/proc", kind: "proc"},
		{source: "sysfs", target: "/sys", kind: "sysfs"},
		{source: "cgroup", target: cgroupAt, kind: "tmpfs", data: "mode=755"},
		{source: "run", target: "/run", kind: "tmpfs", data: "mode=755"},
		{source: filepath.Join(dir, "lib"), target: "/var/lib", flags: unix.MS_BIND},
		{source: filepath.Join(dir, "log"), target: "/var/log", flags: unix.MS_BIND},
	}
	for _, m := range append(list, groups...) {
		for _, path := range []string{m.source, m.target} {
			if strings.HasPrefix(path, dir) || strings.HasPrefix(path, cgroupAt+"/") {
				if err := os.MkdirAll(path, 0o755); err != nil {
					return err
				}
			}
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return nil
}

// unmountBelow gives up what the machine has mounted below a directory: covered, it
// would be kept by us when the machine unmounts it.
func unmountBelow(dir string) error {
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	var targets []string
	for line := range strings.Lines(string(raw)) {
		if target := strings.Fields(line)[1]; target == dir || strings.HasPrefix(target, dir+"/") {
			targets = append(targets, target)
		}
	}
	for _, target := range slices.Backward(targets) {
		if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	return nil
}

// cgroupMounts are the machine's hierarchies, to be mounted once more: what is
// mounted in a cgroup namespace shows that namespace's root.
func cgroupMounts() ([]mount, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []mount
	for lines := bufio.NewScanner(f); lines.Scan(); {
		field := strings.Fields(lines.Text()) // source, target, kind, options
		if !strings.HasPrefix(field[1], cgroupAt+"/") {
			continue
		}
		m := mount{source: field[2], target: field[1], kind: field[2]}
		if m.kind == "cgroup" {
			var data []string
			for option := range strings.SplitSeq(field[3], ",") {
				switch option {
				case "rw", "ro", "relatime", "nosuid", "nodev", "noexec":
				default:
					data = append(data, option)
				}
			}
			m.data = strings.Join(data, ",")
		}
		list = append(list, m)
	}
	return list, nil
}

// becomeKubelet executes the kubelet in a mount namespace that differs from the
// node's in one thing: those settings that the kubelet changes and that are the
// whole machine's are copies. They cannot be that for all of the node, since a
// kernel lets nobody mount a new /proc in a user namespace, which sandboxes have,
// where parts of the old one are covered.
func becomeKubelet(command []string) error {
	if err := unix.Mount("", "/proc", "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep the kubelet's /proc to itself: %w", err)
	}
	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	} {
		path := filepath.Join("/proc/sys", name)
		value, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file := filepath.Join(os.Getenv(dirVar), "sysctl-"+strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, value, 0o600); err != nil {
			return err
		}
		if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
	}
	return unix.Exec(command[0], command, os.Environ())
}

// network makes the node's one interface, which leads nowhere.
func network(string) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "eth0", "type", "veth", "peer", "name", "nowhere"},
		{"addr", "add", nodeIP + "/24", "dev", "eth0"},
		{"link", "set", "nowhere", "up"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", "10.77.0.254", "dev", "eth0"},
	} {
		if _, err := command("ip", args...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}
