package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var mountAttempts = []attempt{
	{name: "mount-tmpfs", opens: "the tool can mount file systems", try: mounting(func(dir string) error {
		return unix.Mount("none", dir, "tmpfs", 0, "")
	})},
	{name: "mount-proc", opens: "the tool gets a /proc without masks", try: mounting(func(dir string) error {
		return unix.Mount("proc", dir, "proc", 0, "")
	})},
	{name: "mount-sysfs", opens: "the tool gets a /sys without masks", try: mounting(func(dir string) error {
		return unix.Mount("sysfs", dir, "sysfs", 0, "")
	})},
	{name: "mount-cgroup", opens: "the tool reaches its own limits, and release_agent", try: mounting(func(dir string) error {
		return errors.Join(unix.Mount("cgroup", dir, "cgroup", 0, "memory"), unix.Mount("cgroup2", dir, "cgroup2", 0, ""))
	})},
	{name: "mount-debugfs", opens: "the tool reads and steers the kernel", try: mounting(func(dir string) error {
		return errors.Join(unix.Mount("debugfs", dir, "debugfs", 0, ""), unix.Mount("tracefs", dir, "tracefs", 0, ""))
	})},
	{name: "mount-overlay", opens: "the tool makes overlays, long a source of escalations", try: mounting(func(dir string) error {
		return unix.Mount("overlay", dir, "overlay", 0, "lowerdir=/,upperdir="+dir+",workdir="+dir)
	})},
	{name: "mount-host-disk", opens: "the tool mounts the host's disk", try: mounting(func(dir string) error {
		var errs []error
		for _, fs := range []string{"ext4", "xfs", "btrfs"} {
			for _, dev := range []string{"/dev/sda1", "/dev/vda1", "/dev/nvme0n1p1", "/dev/root"} {
				errs = append(errs, unix.Mount(dev, dir, fs, unix.MS_RDONLY, ""))
			}
		}
		return errors.Join(errs...)
	})},
	{name: "bind-mount", opens: "the tool lays one file over another", try: mounting(func(dir string) error {
		return unix.Mount("/proc", dir, "", unix.MS_BIND|unix.MS_REC, "")
	})},
	{name: "bind-over-agent", opens: "the tool replaces the agent's binary", try: mounting(func(string) error {
		return unix.Mount(self, "/.toolfleet/agent", "", unix.MS_BIND, "")
	})},
	{name: "remount-root-writable", opens: "the tool writes to the image that all sandboxes share", try: remountRoot},
	{name: "remount-proc-sys", opens: "the tool writes to /proc/sys", try: mounting(func(string) error {
		return unix.Mount("", "/proc/sys/kernel", "", unix.MS_REMOUNT|unix.MS_BIND, "")
	})},
	{name: "make-mounts-shared", opens: "mounts propagate out of the sandbox", try: mounting(func(string) error {
		return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
	})},
	{name: "unmount-masks", opens: "the tool takes the masks off /proc and /sys", try: mounting(func(string) error {
		var errs []error
		for _, at := range []string{"/proc/kcore", "/proc/keys", "/proc/sys/kernel", "/sys/firmware", "/sys/fs/cgroup"} {
			errs = append(errs, unix.Unmount(at, unix.MNT_DETACH))
		}
		return errors.Join(errs...)
	})},
	{name: "pivot-root", opens: "the tool changes its root", try: pivotRoot},
	{name: "chroot-break", opens: "the tool leaves its root by a second chroot", try: chrootBreak},
	{name: "fsopen", opens: "the tool mounts by the newer calls", try: func(bait) outcome {
		return each([]string{"tmpfs", "proc", "cgroup", "cgroup2", "overlay"}, func(fs string) outcome {
			fd, err := unix.Fsopen(fs, 0)
			return descriptor(uintptr(fd), err, "a new "+fs)
		})
	}},
	{name: "fspick-remount", opens: "the tool reconfigures its root", try: func(bait) outcome {
		fd, err := unix.Fspick(unix.AT_FDCWD, "/", 0)
		return descriptor(uintptr(fd), err, "the root's configuration")
	}},
	{name: "open-tree-clone", opens: "the tool copies mounts, without what lies over them", try: func(bait) outcome {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/proc", unix.OPEN_TREE_CLONE)
		return descriptor(uintptr(fd), err, "a copy of /proc's mount")
	}},
	{name: "move-mount", opens: "the tool moves a mask out of the way", try: mounting(func(dir string) error {
		return unix.MoveMount(unix.AT_FDCWD, "/proc/keys", unix.AT_FDCWD, dir, 0)
	})},
	{name: "mount-setattr", opens: "the tool takes read-only off a mount", try: mounting(func(string) error {
		return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	})},
}

// mounting is an attempt that is open when the table of mounts changed.
func mounting(do func(dir string) error) func(bait) outcome {
	return func(bait) outcome {
		dir, err := os.MkdirTemp("/tmp", "mount-")
		if err != nil {
			return open("cannot tell: %v", err)
		}
		before := mounts()
		err = do(dir)
		if !slices.Equal(before, mounts()) {
			return open("the mounts changed")
		}
		if err == nil {
			err = errNoEffect
		}
		return judge(err, "")
	}
}

// mounts is the table of mounts. A table that cannot be read is never equal to
// another one.
func mounts() []string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{fmt.Sprint(err, os.Getpid(), len(text))}
	}
	return strings.Split(string(text), "\n")
}

func remountRoot(b bait) outcome {
	o := mounting(func(string) error {
		return errors.Join(unix.Mount("", "/", "", unix.MS_REMOUNT, ""), unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	})(b)
	return first(o, creatable("/written"))
}

func pivotRoot(bait) outcome {
	dir, err := os.MkdirTemp("/tmp", "root-")
	if err != nil {
		return open("cannot tell: %v", err)
	}
	return judge(unix.PivotRoot(dir, dir), "changed the root")
}

// chrootBreak is the classic: a root below the working directory, then upwards.
func chrootBreak(b bait) outcome {
	dir, err := os.MkdirTemp("/tmp", "root-")
	if err != nil {
		return open("cannot tell: %v", err)
	}
	if err := unix.Chroot(dir); err != nil {
		return denied(err)
	}
	for range 64 {
		_ = unix.Chdir("..")
	}
	if err := unix.Chroot("."); err == nil && hasSecret(b.marker, b) {
		return open("left the root")
	}
	return open("changed the root")
}
