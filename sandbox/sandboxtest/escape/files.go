package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

var fileAttempts = []attempt{
	{name: "write-image", opens: "the tool changes the image that all sandboxes share", try: func(bait) outcome {
		return first(creatable("/written"), creatable("/etc/written"), creatable("/home/written"), writable("/tool"), writable("/etc/passwd"))
	}},
	{name: "write-agent-directory", opens: "the tool replaces the agent", try: func(bait) outcome {
		return first(creatable("/.toolfleet/written"), judge(os.Rename("/.toolfleet/agent", "/.toolfleet/old"), "renamed the agent"),
			judge(os.Remove("/.toolfleet/agent"), "removed the agent"), judge(os.Chmod("/.toolfleet/agent", 0o777), "changed the agent's mode"))
	}},
	{name: "chown-image", opens: "the tool owns files of the image", try: func(bait) outcome {
		return first(judge(os.Chown("/tool", os.Getuid(), os.Getgid()), "owns /tool"), judge(os.Chmod("/tool", 0o777), "changed /tool's mode"))
	}},
	{name: "read-host-file", opens: "the tool reads a file of the host", try: readHostFile},
	{name: "leaked-descriptors", opens: "the tool was given a directory of the host (CVE-2024-21626)", try: leakedDescriptors},
	{name: "leaked-working-directory", opens: "the tool's working directory is outside of its root", try: leakedWorkingDirectory},
	{name: "open-by-handle", opens: "the tool opens files of the host by number (shocker)", try: openByHandle},
	{name: "name-to-handle", opens: "the tool turns a handle of its own into a file of the host", try: nameToHandle},
	{name: "overlay-attributes", opens: "the tool redirects files of the image", try: overlayAttributes},
	{name: "trusted-attributes", opens: "the tool sets attributes that only root may", try: trustedAttributes},
	{name: "immutable-files", opens: "the tool makes files that cannot be cleaned up", try: immutable},
	{name: "find-host-sockets", opens: "a socket of the host is in the sandbox", try: hostSockets},
	{name: "containerd-socket", opens: "the tool orders containers", try: func(b bait) outcome {
		return each([]string{b.containerd, b.containerd + ".ttrpc", "/run/containerd/containerd.sock", "/var/run/docker.sock", "/run/systemd/private", "/run/dbus/system_bus_socket"}, connectUnix)
	}},
}

// hasSecret tells whether the file at path is the host's.
func hasSecret(path string, b bait) bool {
	text, err := os.ReadFile(path)
	return err == nil && b.secret != "" && strings.Contains(string(text), b.secret)
}

func readsSecret(path string, b bait) outcome {
	if hasSecret(path, b) {
		return open("read the host's file at %s", path)
	}
	return denied(fmt.Errorf("the host's file is not at %s", path))
}

func readHostFile(b bait) outcome {
	up := strings.Repeat("../", 64)
	return each([]string{
		b.marker, up + b.marker, "/proc/self/root" + b.marker, "/proc/self/cwd/" + up + b.marker,
		agent + "/root" + b.marker, agent + "/cwd/" + up + b.marker, "/proc/thread-self/root/" + up + b.marker,
	}, func(path string) outcome { return readsSecret(path, b) })
}

// leakedDescriptors looks at what this process was given, and goes up from
// there.
func leakedDescriptors(b bait) outcome {
	outcomes := []outcome{denied(errors.New("nothing but pipes is open"))}
	for fd := range 256 {
		path := "/proc/self/fd/" + strconv.Itoa(fd)
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		outcomes = append(outcomes, readsSecret(path+"/"+strings.Repeat("../", 64)+b.marker, b))
		up, err := unix.Openat2(fd, strings.TrimPrefix(b.marker, "/"), &unix.OpenHow{Flags: unix.O_RDONLY})
		if err == nil {
			_ = unix.Close(up)
			outcomes = append(outcomes, open("descriptor %d leads to the host", fd))
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			outcomes = append(outcomes, open("descriptor %d is a directory", fd))
		}
	}
	return first(outcomes...)
}

func leakedWorkingDirectory(b bait) outcome {
	dir, err := os.Getwd()
	if err != nil || strings.HasPrefix(dir, "(unreachable)") {
		return open("the working directory is %s, %v", dir, err)
	}
	return each([]string{"/proc/self/fd/7", "/proc/self/fd/8", "/proc/self/fd/9"}, func(path string) outcome {
		if err := os.Chdir(path); err != nil {
			return denied(err)
		}
		return readsSecret(strings.Repeat("../", 64)+b.marker, b)
	})
}

// openByHandle asks for inode 2, the root of most file systems, by way of every
// mount that it can open.
func openByHandle(bait) outcome {
	return each([]string{"/", "/tmp", "/workspace", "/.toolfleet"}, func(dir string) outcome {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return denied(err)
		}
		defer unix.Close(fd) //nolint:errcheck // the process ends anyway
		handle := unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})
		got, err := unix.OpenByHandleAt(fd, handle, unix.O_RDONLY)
		return descriptor(uintptr(got), err, "a file by its number")
	})
}

// nameToHandle makes a handle of a directory of the sandbox and opens its
// neighbours' numbers with it.
func nameToHandle(bait) outcome {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/tmp", 0)
	if err != nil {
		return judge(err, "")
	}
	fd, err := unix.Open("/tmp", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return denied(err)
	}
	defer unix.Close(fd) //nolint:errcheck // the process ends anyway
	got, err := unix.OpenByHandleAt(fd, handle, unix.O_RDONLY)
	return descriptor(uintptr(got), err, "a file by its handle")
}

func overlayAttributes(bait) outcome {
	return each([]string{"trusted.overlay.redirect", "trusted.overlay.opaque", "user.overlay.redirect"}, func(name string) outcome {
		return judge(unix.Setxattr("/tool", name, []byte("/etc"), 0), "set "+name)
	})
}

func trustedAttributes(bait) outcome {
	return each([]string{"trusted.escape", "security.selinux", "security.ima", "security.apparmor", "system.posix_acl_access"}, func(name string) outcome {
		return judge(unix.Setxattr("/tool", name, []byte("x"), 0), "set "+name)
	})
}

// immutable sets the flag on files in every writable place.
func immutable(bait) outcome {
	return each(writablePlaces, func(dir string) outcome {
		f, err := os.CreateTemp(dir, "immutable-")
		if err != nil {
			return denied(err)
		}
		defer f.Close()
		flags := uint32(0x10) // FS_IMMUTABLE_FL
		_, err = call(unix.SYS_IOCTL, f.Fd(), unix.FS_IOC_SETFLAGS, uintptr(unsafe.Pointer(&flags)))
		if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) {
			return absent("the file system has no such flag")
		}
		return judge(err, "made a file immutable")
	})
}

// hostSockets looks for a socket in the file system. The sandbox has none, so
// that one found is somebody else's.
func hostSockets(bait) outcome {
	outcomes := []outcome{denied(errors.New("there is no socket"))}
	_ = filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // what cannot be listed is not found
		case path == "/proc" || path == "/sys":
			return filepath.SkipDir
		case d.Type()&fs.ModeSocket != 0:
			outcomes = append(outcomes, open("there is %s", path))
		}
		return nil
	})
	return first(outcomes...)
}
