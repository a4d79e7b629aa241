package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// cellPlaces are the writable places and their modes. They lie on one tmpfs, so
// that its size is the limit of them all.
var cellPlaces = []struct {
	path  string
	mode  os.FileMode
	flags uintptr
	below []string // directories in it
}{
	{wire.DirTmp, 0o777 | os.ModeSticky, 0, nil},
	{wire.DirWorkspace, 0o755, 0, []string{wire.DirOut}},
	{wire.DirHome, 0o755, 0, nil},
	{"/dev/shm", 0o777 | os.ModeSticky, unix.MS_NOEXEC, nil},
}

// makePlace makes a directory for the tool, and others in it while that is still
// the agent's, who has no right to write into what is somebody else's.
func makePlace(dir string, mode os.FileMode, below ...string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, name := range below {
		if err := makePlace(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(os.Chmod(dir, mode), os.Chown(dir, wire.ToolUser, wire.ToolUser))
}

// mountPlaces mounts the tmpfs over /tmp, since there is no other writable
// place, takes its directories from there, and puts that of /tmp on top. What
// the container had there is covered. /dev, which the container's user 0 could
// write to, becomes read-only, and terminals are the cell's own.
func (c *cell) mountPlaces() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=711", c.want.Disk, wire.Inodes(c.want.Disk))
	if err := unix.Mount("toolfleet", wire.DirTmp, "tmpfs", flags, options); err != nil {
		return fmt.Errorf("mount its disk: %w", err)
	}
	for i, p := range slices.Backward(cellPlaces) {
		dir := filepath.Join(wire.DirTmp, fmt.Sprint(i))
		if err := makePlace(dir, p.mode, p.below...); err != nil {
			return fmt.Errorf("make its disk: %w", err)
		}
		if err := bind(dir, p.path, flags|p.flags); err != nil {
			return err
		}
	}
	if err := remount("/dev", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_RDONLY); err != nil {
		return err
	}
	err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5,max=16")
	// gVisor has one set of terminals and refuses another. A terminal ends with
	// the last process that holds it, so none outlives its cell there either.
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("mount its terminals: %w", err)
	}
	return nil
}

const procFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// hideProc hides in the cell's new /proc, which comes up bare, what the
// container's hides.
func hideProc() error {
	for _, path := range wire.MaskedPaths {
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			continue
		}
		over := "/dev/null"
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			over = EmptyDir
		}
		if err := unix.Mount(over, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	for _, path := range wire.ReadonlyPaths {
		if err := bind(path, path, procFlags|unix.MS_RDONLY); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// bind mounts from at to, with flags that a bind mount takes only afterwards.
func bind(from, to string, flags uintptr) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", to, err)
	}
	return remount(to, flags)
}

func remount(path string, flags uintptr) error {
	if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("remount %s: %w", path, err)
	}
	return nil
}

// mountProc mounts the cell's /proc. A /proc is of the pid namespace of whoever
// mounts it, and the thread's own is still the container's. Linux 6.17 and later
// can be told another, earlier ones refuse the option; there a process of the
// cell's has to do it. So it has when alone, in gVisor, which takes no notice of
// the option and would mount the container's.
func mountProc(alone bool) error {
	if !alone {
		err := unix.Mount("proc", "/proc", "proc", procFlags, "pidns=/proc/thread-self/ns/pid_for_children")
		if !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	pid, err := syscall.ForkExec(MountProcPath, []string{"mount-proc"}, &syscall.ProcAttr{Dir: "/"})
	if err != nil {
		return err
	}
	var ws unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &ws, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case err != nil:
		return err
	case ws.Signaled():
		return fmt.Errorf("its program was killed by %v", ws.Signal())
	case ws.ExitStatus() != 0:
		return unix.Errno(ws.ExitStatus())
	}
	return nil
}
