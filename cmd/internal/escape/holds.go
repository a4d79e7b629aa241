package escape

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// holding is an attempt to use up what the kernel counts for a user, or for the
// machine, and not for a cgroup. All that a sandbox takes of such things may be
// charged to whoever made it, the host's root; see [user_namespaces(7)] and
// /proc/sys/user.
//
// The tool takes what it gets and keeps it. Meanwhile, and after its end, the
// host takes one for itself; where it cannot do that before, there is nothing to
// be tried.
type holding struct {
	name, takes string
	check       func(*witness) error
}

var holds = []holding{
	{name: "exhaust-inotify-instances", takes: "inotify-instances", check: inotify},
	{name: "exhaust-inotify-watches", takes: "inotify-watches", check: watch},
	{name: "exhaust-keys", takes: "keys", check: key},
	{name: "exhaust-user-namespaces", takes: "user-namespaces", check: process(unix.CLONE_NEWUSER)},
	{name: "exhaust-processes", takes: "processes", check: process(0)},
	{name: "exhaust-pending-signals", takes: "pending-signals", check: timer},
	{name: "exhaust-timers", takes: "timers", check: timer},
	{name: "exhaust-message-queues", takes: "message-queues", check: messageQueue},
	{name: "exhaust-semaphores", takes: "semaphores", check: semaphore},
	{name: "exhaust-shared-memory", takes: "shared-memory", check: sharedMemory},
	{name: "exhaust-locked-memory", takes: "locked-memory", check: sharedMemory},
	{name: "exhaust-tcp-memory", takes: "tcp-memory", check: socketMemory("TCP")},
	{name: "exhaust-udp-memory", takes: "udp-memory", check: socketMemory("UDP")},
	{name: "exhaust-terminals", takes: "terminals", check: terminal},
	{name: "exhaust-open-files", takes: "open-files", check: openFile},
	{name: "exhaust-pipe-pages", takes: "pipe-pages", check: pipe},
	{name: "workspace-races", takes: "workspace-races", check: (*witness).intact},
}

func inotify(*witness) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("no more inotify instances: %w", err)
	}
	return unix.Close(fd)
}

func watch(w *witness) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("no more inotify instances: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	if _, err := unix.InotifyAddWatch(fd, w.dir, unix.IN_CREATE); err != nil {
		return fmt.Errorf("no more inotify watches: %w", err)
	}
	return nil
}

func key(*witness) error {
	id, err := unix.AddKey("user", "toolfleet-escape", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
	if err != nil {
		return fmt.Errorf("no more keys: %w", err)
	}
	_, err = unix.KeyctlInt(unix.KEYCTL_INVALIDATE, id, 0, 0, 0)
	return err
}

// process starts one, in new namespaces when flags say so.
func process(flags uintptr) func(*witness) error {
	return func(*witness) error {
		cmd := exec.Command("/bin/true") //nolint:noctx // it ends at once
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("no more processes: %w", err)
		}
		return nil
	}
}

// timer holds a queued signal, and so needs one.
func timer(*witness) error {
	var id int32
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&id))); errno != 0 {
		return fmt.Errorf("no more timers and queued signals: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(id), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func messageQueue(w *witness) error {
	name := []byte(w.abstract + "\x00")
	attr := [8]int64{1: 1, 2: 64} // messages, and bytes in each
	at := uintptr(unsafe.Pointer(&name[0]))
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, at, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600, uintptr(unsafe.Pointer(&attr)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("no more message queues: %w", errno)
	}
	_ = unix.Close(int(fd))
	if _, _, errno := unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func semaphore(*witness) error {
	id, _, errno := unix.Syscall(unix.SYS_SEMGET, unix.IPC_PRIVATE, 1, 0o600)
	if errno != 0 {
		return fmt.Errorf("no more semaphores: %w", errno)
	}
	if _, _, errno := unix.Syscall6(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// sharedMemory makes a segment, locks and removes it.
func sharedMemory(*witness) error {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, 0o600)
	if err != nil {
		return fmt.Errorf("no more shared memory: %w", err)
	}
	const lock = 11 // SHM_LOCK
	_, lockErr := unix.SysvShmCtl(id, lock, nil)
	if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
		return err
	}
	if lockErr != nil {
		return fmt.Errorf("no more locked memory: %w", lockErr)
	}
	return nil
}

// socketMemory is the machine's, over all network namespaces: beyond the second
// of three thresholds every socket of the host gets smaller buffers. One sandbox
// may have an eighth of it, which is more than any tool needs.
func socketMemory(protocol string) func(*witness) error {
	return func(*witness) error {
		stat, err := os.ReadFile("/proc/net/sockstat")
		if err != nil {
			return err
		}
		limits, err := os.ReadFile("/proc/sys/net/ipv4/" + strings.ToLower(protocol) + "_mem")
		if err != nil {
			return err
		}
		var low, pressure, used int
		if _, err := fmt.Sscan(string(limits), &low, &pressure); err != nil {
			return fmt.Errorf("read the limits of %s: %w", protocol, err)
		}
		_, after, _ := strings.Cut(string(stat), protocol+": ")
		_, after, _ = strings.Cut(after, " mem ")
		if _, err := fmt.Sscan(after, &used); err != nil {
			return fmt.Errorf("read the use of %s: %w", protocol, err)
		}
		if used > pressure/8 {
			return fmt.Errorf("%d of %d pages for %s are taken", used, pressure, protocol)
		}
		return nil
	}
}

func terminal(*witness) error {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("no more terminals: %w", err)
	}
	return unix.Close(fd)
}

func openFile(w *witness) error {
	f, err := os.Open(w.marker)
	if err != nil {
		return fmt.Errorf("no more open files: %w", err)
	}
	return f.Close()
}

func pipe(*witness) error {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("no more pipes: %w", err)
	}
	defer unix.Close(fds[0]) //nolint:errcheck // nothing was written
	defer unix.Close(fds[1]) //nolint:errcheck // nothing was written
	if _, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, 1<<20); err != nil {
		return fmt.Errorf("no more pages for pipes: %w", err)
	}
	return nil
}
