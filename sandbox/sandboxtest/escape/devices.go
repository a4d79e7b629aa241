package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

var deviceAttempts = []attempt{
	{name: "mknod-disk", opens: "the tool makes a device of the host's disk", try: making(unix.S_IFBLK, 8, 0)},
	{name: "mknod-memory", opens: "the tool makes a device of the machine's memory", try: making(unix.S_IFCHR, 1, 1)},
	{name: "mknod-tun", opens: "the tool makes a device for a network of its own", try: making(unix.S_IFCHR, 10, 200)},
	{name: "mknod-fuse", opens: "the tool makes a device for file systems of its own", try: making(unix.S_IFCHR, 10, 229)},
	{name: "open-disk", opens: "the tool reads the host's disk", try: opening("/dev/sda", "/dev/vda", "/dev/xvda", "/dev/nvme0n1", "/dev/dm-0", "/dev/loop0", "/dev/root", "/dev/ubda")},
	{name: "open-memory", opens: "the tool reads the machine's memory", try: opening("/dev/mem", "/dev/kmem", "/dev/port")},
	{name: "open-kernel-log", opens: "the tool reads or writes the kernel's messages", try: opening("/dev/kmsg", "/proc/kmsg")},
	{name: "open-kvm", opens: "the tool runs virtual machines", try: opening("/dev/kvm", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/vsock")},
	{name: "open-tun", opens: "the tool makes network interfaces", try: openTun},
	{name: "open-fuse", opens: "the tool makes file systems", try: openFUSE},
	{name: "open-control-devices", opens: "the tool steers devices", try: opening("/dev/loop-control", "/dev/mapper/control", "/dev/btrfs-control",
		"/dev/cpu/0/msr", "/dev/uinput", "/dev/userfaultfd", "/dev/hwrng", "/dev/rtc", "/dev/watchdog", "/dev/snapshot", "/dev/sgx_enclave", "/dev/dri/card0", "/dev/input/event0")},
	{name: "unexpected-devices", opens: "the sandbox has a device beyond the standard ones", try: unexpectedDevices},
	{name: "write-dev", opens: "the tool lays files beside the devices", try: func(bait) outcome { return creatable("/dev/written") }},
	{name: "io-ports", opens: "the tool uses the machine's I/O ports", try: func(bait) outcome { return ports() }},
	{name: "inject-terminal-input", opens: "the tool types into a terminal of the host (TIOCSTI, TIOCLINUX)", try: injectInput},
	{name: "steal-terminal", opens: "the tool takes a terminal of the host", try: opening("/dev/console", "/dev/tty", "/dev/tty0", "/dev/tty1", "/dev/ttyS0", "/dev/vcs")},
}

// making is open when the device was made and opens.
func making(kind uint32, major, minor uint32) func(bait) outcome {
	return func(bait) outcome {
		return each(writablePlaces, func(dir string) outcome {
			path := filepath.Join(dir, "device")
			if err := unix.Mknod(path, kind|0o600, int(unix.Mkdev(major, minor))); err != nil {
				return denied(err)
			}
			defer os.Remove(path) //nolint:errcheck // goes with the sandbox
			return first(readable(path), writable(path))
		})
	}
}

// opening is open when one of the files opens. That one is not there is how a
// sandbox denies it: the kernel may have the device all the same.
func opening(paths ...string) func(bait) outcome {
	return func(bait) outcome {
		return each(paths, func(path string) outcome {
			var outcomes []outcome
			for _, how := range []int{unix.O_RDONLY, unix.O_WRONLY} {
				fd, err := unix.Open(path, how|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
				if err != nil {
					outcomes = append(outcomes, denied(err))
					continue
				}
				_ = unix.Close(fd)
				outcomes = append(outcomes, open("opened %s", path))
			}
			return first(outcomes...)
		})
	}
}

// standard are the devices of every container, and the terminals that belong to
// the sandbox alone.
var standard = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts/ptmx"}

// ofGVisor are the devices that gVisor makes itself, out of nothing of the host's.
var ofGVisor = []string{"/dev/fuse", "/dev/net/tun"}

func unexpectedDevices(bait) outcome {
	var odd []string
	err := filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // what cannot be read cannot be opened
		case path == "/proc" || path == "/sys":
			return filepath.SkipDir
		case d.Type()&fs.ModeDevice != 0 && !slices.Contains(standard, path) && (!gVisor() || !slices.Contains(ofGVisor, path)):
			odd = append(odd, path)
		}
		return nil
	})
	switch {
	case err != nil:
		return open("cannot tell: %v", err)
	case len(odd) > 0:
		return open("there are %v", odd)
	}
	return denied(errors.New("only the standard devices are there"))
}

// openTun is open when there is an interface: gVisor has the device for everybody.
func openTun(bait) outcome {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return denied(err)
	}
	ifr, err := unix.NewIfreq("escape0")
	if err != nil {
		return open("cannot tell: %v", err)
	}
	ifr.SetUint16(unix.IFF_TUN)
	return judge(unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr), "made an interface")
}

// openFUSE is open when there is a file system.
func openFUSE(b bait) outcome {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return denied(err)
	}
	return mounting(func(dir string) error {
		return unix.Mount("fuse", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", fd, os.Getuid(), os.Getgid()))
	})(b)
}

// injectInput tries what the tool was given, and every terminal it can open.
func injectInput(bait) outcome {
	fds := []int{0, 1, 2, 3}
	for _, path := range []string{"/dev/tty", "/dev/console", "/dev/pts/0"} {
		if fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0); err == nil {
			fds = append(fds, fd)
		}
	}
	return each(fds, func(fd int) outcome {
		char, paste := [1]byte{'x'}, [1]byte{3}
		_, sti := call(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&char)))
		_, linux := call(unix.SYS_IOCTL, uintptr(fd), unix.TIOCLINUX, uintptr(unsafe.Pointer(&paste)))
		return first(judge(sti, "typed"), judge(linux, "pasted"))
	})
}
