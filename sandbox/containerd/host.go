package containerd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
)

// programs are what a fleet needs besides its own.
var programs = []string{"containerd", "containerd-shim-runc-v2", "runc"}

// Host is what this machine offers to sandboxes.
type Host struct {
	Kernel string
	// Cgroups is "v2", "v1" or "hybrid" (v1 controllers beside an empty v2
	// tree), or "none".
	Cgroups string
	// Overlay, UserNamespaces, Seccomp and AppArmor tell whether the kernel
	// has them.
	Overlay, UserNamespaces, Seccomp, AppArmor bool
	// SwapLimit tells whether the kernel can bound swap; without it and with
	// swap on, a sandbox may swap beyond its memory limit.
	SwapLimit bool
	// CorePipe is the core_pattern if it is a pipe: a crash in a sandbox then
	// starts a program on the host, whatever RLIMIT_CORE says.
	CorePipe string
	// Inotify is how many inotify instances one user may have. All sandboxes
	// together are charged to root, who started them.
	Inotify string
	// Programs holds the first line of each program's version, empty where
	// it was not found.
	Programs map[string]string
	// Problems are sentences on what is missing, and Warnings on what is
	// weak; each says what to do.
	Problems, Warnings []string
}

// Inspect looks at this machine. binDir holds the programs, as in
// [DaemonConfig].
func Inspect(binDir string) Host {
	h := Host{
		Kernel: kernel(), Cgroups: cgroupMode(),
		Overlay:        hasLine("/proc/filesystems", "overlay"),
		UserNamespaces: exists("/proc/self/ns/user") && readTrim("/proc/sys/user/max_user_namespaces") != "0",
		Seccomp:        strings.Contains(readTrim("/proc/sys/kernel/seccomp/actions_avail"), "errno"),
		AppArmor:       readTrim("/sys/module/apparmor/parameters/enabled") == "Y",
		SwapLimit:      swapLimit(),
		Inotify:        readTrim("/proc/sys/fs/inotify/max_user_instances"),
		Programs:       map[string]string{},
	}
	if p := readTrim("/proc/sys/kernel/core_pattern"); strings.HasPrefix(p, "|") {
		h.CorePipe = p
	}
	for _, name := range programs {
		h.Programs[name] = version(filepath.Join(binDir, name))
	}
	h.judge()
	return h
}

func (h *Host) judge() {
	problem := func(bad bool, sentence string) {
		if bad {
			h.Problems = append(h.Problems, sentence)
		}
	}
	warn := func(bad bool, sentence string) {
		if bad {
			h.Warnings = append(h.Warnings, sentence)
		}
	}
	problem(os.Geteuid() != 0, "toolfleet runs containers and must be root; start it with sudo")
	problem(h.Cgroups == "none", "no cgroups are mounted; mount cgroup2 at /sys/fs/cgroup or boot with systemd")
	if c := missingController(); h.Cgroups != "none" && c != "" {
		problem(true, noController(c))
	}
	problem(!h.Overlay, "the kernel has no overlayfs; load it with modprobe overlay")
	problem(!h.UserNamespaces, "the kernel has no user namespaces; set sysctl user.max_user_namespaces above 0")
	problem(!h.Seccomp, "the kernel has no seccomp filters; it needs CONFIG_SECCOMP_FILTER")
	for _, name := range programs {
		problem(h.Programs[name] == "", name+" is missing; run make setup")
	}
	warn(h.CorePipe != "", "core_pattern is a pipe, so a crashing tool starts a program on the host; set sysctl kernel.core_pattern=core")
	warn(!h.SwapLimit && swapOn(), "swap is on and cannot be limited, so tools may swap beyond their memory limit; boot with swapaccount=1 or turn swap off")
	warn(!h.AppArmor, "the kernel has no AppArmor; sandboxes do without that layer")
}

// Preflight returns the first reason why no containerd of ours can run on this
// machine with its state in stateDir, as one sentence for people.
func Preflight(stateDir string) error {
	switch {
	case os.Geteuid() != 0:
		return errors.New("containerd: toolfleet runs containers and must be root; start it with sudo")
	case cgroupMode() == "none":
		return errors.New("containerd: no cgroups are mounted; mount cgroup2 at /sys/fs/cgroup or boot with systemd")
	case missingController() != "":
		return errors.New("containerd: " + noController(missingController()))
	case !hasLine("/proc/filesystems", "overlay") && exec.Command("modprobe", "overlay").Run() != nil: //nolint:noctx // a moment, at the start of the program
		return errors.New("containerd: the kernel has no overlayfs; load it with modprobe overlay")
	}
	return CheckStateDir(stateDir)
}

// magic numbers of file systems that cannot lie below image layers.
var unfit = map[int64]string{
	unix.OVERLAYFS_SUPER_MAGIC: "an overlay, and the kernel stacks only two of them",
	unix.NFS_SUPER_MAGIC:       "NFS",
	unix.FUSE_SUPER_MAGIC:      "FUSE",
	unix.V9FS_MAGIC:            "9p",
}

// CheckStateDir makes the directory that a containerd of ours keeps its state
// in, and says, as one sentence for people, why it may not lie there.
func CheckStateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("containerd: make the state directory: %w", err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("containerd: look at the state directory: %w", err)
	}
	if name, bad := unfit[fs.Type]; bad {
		return fmt.Errorf("containerd: the state directory %s lies on %s; choose one on a local disk with --state", dir, name)
	}
	if !mapsIDs(dir) {
		return fmt.Errorf("containerd: the file system of the state directory %s cannot map user ids with Linux %s; choose one on ext4, xfs or btrfs with --state", dir, kernel())
	}
	return nil
}

// mapsIDs tries what each start does with the layers of an image below dir. The
// file system must be able to do it, which they learned one after another:
// tmpfs, for one, in Linux 6.3. Whatever else keeps us from trying, such as not
// being root, is told by somebody else.
func mapsIDs(dir string) bool {
	userns, err := mount.GetUsernsFD("0:100000:1", "0:100000:1")
	if err != nil {
		return true
	}
	defer func() { _ = userns.Close() }()
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return !errors.Is(err, unix.ENOSYS)
	}
	defer func() { _ = unix.Close(tree) }()
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd()),
	})
	return !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS)
}

func cgroupMode() string {
	switch cgroups.Mode() {
	case cgroups.Unified:
		return "v2"
	case cgroups.Unavailable:
		return "none"
	}
	// A tmpfs at /sys/fs/cgroup looks like v1 even with nothing in it.
	if !exists(filepath.Join(cgroupRoot, "memory")) || !exists(filepath.Join(cgroupRoot, "pids")) {
		return "none"
	}
	if cgroups.Mode() == cgroups.Hybrid {
		return "hybrid"
	}
	return "v1"
}

// missingController is the first cgroup controller that limits need and the
// machine, or the container we run in, lacks.
func missingController() string {
	enabled := strings.Fields(readTrim(filepath.Join(cgroupRoot, "cgroup.controllers")))
	for _, c := range []string{"cpu", "memory", "pids"} {
		if cgroupMode() == "v2" && !slices.Contains(enabled, c) || cgroupMode() != "v2" && !exists(filepath.Join(cgroupRoot, c)) {
			return c
		}
	}
	return ""
}

func noController(name string) string {
	return "the cgroup controller " + name + " is missing, and tools cannot be limited without; boot with cgroup_enable=" + name
}

// swapLimit tells whether a cgroup can bound swap.
func swapLimit() bool {
	return exists("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes") || cgroupMode() == "v2" && exists("/proc/swaps")
}

func swapOn() bool {
	return strings.Count(readTrim("/proc/swaps"), "\n") > 0
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func version(path string) string {
	out, err := exec.Command(path, "--version").Output() //nolint:noctx // answers at once
	if err != nil {
		if out, err = exec.Command(path, "-v").Output(); err != nil { //nolint:noctx // answers at once
			return ""
		}
	}
	// The shim writes a heading, and its version in the line below.
	line, rest, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if strings.HasSuffix(line, ":") {
		line, _, _ = strings.Cut(strings.TrimSpace(rest), "\n")
	}
	return line
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func readTrim(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func hasLine(path, word string) bool {
	for line := range strings.Lines(readTrim(path)) {
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[len(fields)-1] == word {
			return true
		}
	}
	return false
}
