package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// holds take all they get of something that the kernel counts for a user, and
// return how much that was. They stay, as long as this process lives.
var holds = map[string]func() int{
	"inotify-instances": func() int { return until(func() error { _, err := unix.InotifyInit1(0); return err }) },
	"inotify-watches":   inotifyWatches,
	"keys": func() int {
		n := 0
		return until(func() error {
			n++
			_, err := unix.AddKey("user", fmt.Sprint("escape-", n), make([]byte, 1024), unix.KEY_SPEC_PROCESS_KEYRING)
			return err
		})
	},
	"user-namespaces": func() int { return until(func() error { return unix.Unshare(unix.CLONE_NEWUSER) }) },
	"processes":       func() int { return until(child) },
	"pending-signals": pendingSignals,
	"timers":          timers,
	"message-queues":  messageQueues,
	"semaphores":      func() int { return until(func() error { _, err := call(unix.SYS_SEMGET, 0, 250, 0o600); return err }) },
	"shared-memory": func() int {
		return until(func() error { _, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, 0o600); return err })
	},
	"tcp-memory":      tcpMemory,
	"udp-memory":      udpMemory,
	"terminals":       terminals,
	"open-files":      openFiles,
	"pipe-pages":      pipePages,
	"locked-memory":   lockedMemory,
	"abstract-socket": nil, // takes its name as argument; see hold
	"workspace-races": workspaceRaces,
}

// most bounds what is taken of one thing; nothing in a sandbox may come to it.
const most = 1 << 20

// until does it again and again and counts how often that worked.
func until(do func() error) int {
	for n := range most {
		if do() != nil {
			return n
		}
	}
	return most
}

func hold(what string) {
	name, arg, _ := strings.Cut(what, "=")
	take, ok := holds[name]
	switch {
	case name == "abstract-socket":
		l, err := net.Listen("unix", "@"+arg) //nolint:noctx // lives as long as the process
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		defer l.Close()
		fmt.Fprintln(os.Stderr, "holds 1")
	case !ok:
		fmt.Fprintln(os.Stderr, "there is nothing to hold:", name)
		os.Exit(2)
	default:
		// The Go runtime wants a few files for itself, also when all are taken.
		var spare [8]int
		for i := range spare {
			spare[i], _ = unix.Open("/dev/null", unix.O_RDONLY, 0)
		}
		n := take()
		for _, fd := range spare {
			_ = unix.Close(fd)
		}
		fmt.Fprintln(os.Stderr, "holds", n)
	}
	wait()
}

// wait lasts until somebody ends this process.
func wait() {
	for {
		<-time.After(time.Hour)
	}
}

func child() error {
	return exec.Command(self, "wait").Start() //nolint:noctx // lives as long as the sandbox
}

func inotifyWatches() int {
	fd, err := unix.InotifyInit1(0)
	if err != nil {
		return 0
	}
	n := 0
	return until(func() error {
		n++
		path := filepath.Join("/tmp", fmt.Sprint("watch-", n))
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		_, err := unix.InotifyAddWatch(fd, path, unix.IN_ALL_EVENTS)
		return err
	})
}

// pendingSignals queues real-time signals that nobody takes.
func pendingSignals() int {
	const signal = 40
	set := uint64(1) << (signal - 1)
	_, _ = call(unix.SYS_RT_SIGPROCMASK, 0, uintptr(unsafe.Pointer(&set)), 0, 8)
	info := [128]byte{0: signal, 8: 0xff, 9: 0xff, 10: 0xff, 11: 0xff} // si_code -1, SI_QUEUE
	tid := uintptr(unix.Gettid())
	return until(func() error {
		_, err := call(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(os.Getpid()), tid, signal, uintptr(unsafe.Pointer(&info)))
		return err
	})
}

// timers: each holds a queued signal.
func timers() int {
	var id int32
	return until(func() error {
		_, err := call(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&id)))
		return err
	})
}

// messageQueues makes large ones, then small ones where no large one fits.
func messageQueues() int {
	n := 0
	make1 := func(messages, size int64) func() error {
		return func() error {
			n++
			name := fmt.Appendf(nil, "escape-%d\x00", n)
			attr := [8]int64{1: messages, 2: size}
			_, err := call(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_RDWR, 0o600, uintptr(unsafe.Pointer(&attr)))
			return err
		}
	}
	return until(make1(10, 1024)) + until(make1(1, 1))
}

// tcpMemory fills the buffers of TCP connections over loopback: their sum is
// bounded for the machine, and whoever comes after must do with less.
func tcpMemory() int {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0
	}
	address := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: 9999}
	if unix.Bind(l, address) != nil || unix.Listen(l, 16) != nil {
		return 0
	}
	block := make([]byte, 1<<20)
	sent := 0
	until(func() error {
		c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		if err := unix.Connect(c, address); err != nil {
			return err
		}
		if _, _, err := unix.Accept(l); err != nil {
			return err
		}
		for err == nil {
			var n int
			n, err = unix.SendmsgN(c, block, nil, nil, unix.MSG_DONTWAIT)
			sent += max(0, n)
		}
		return nil
	})
	return sent
}

// udpMemory fills the buffers of sockets that nobody reads.
func udpMemory() int {
	from, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return 0
	}
	block := make([]byte, 60<<10)
	port, sent := 10_000, 0
	until(func() error {
		port++
		address := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}
		to, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		if err := unix.Bind(to, address); err != nil {
			return err
		}
		_ = unix.SetsockoptInt(to, unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<20)
		for range 64 { // more than fits; the rest is dropped
			if unix.Sendto(from, block, unix.MSG_DONTWAIT, address) == nil {
				sent += len(block)
			}
		}
		return nil
	})
	return sent
}

func terminals() int {
	return until(func() error {
		_, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
		return err
	})
}

// openFiles opens as many as this process and its children may.
func openFiles() int {
	return until(func() error {
		_, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
		return err
	})
}

func pipePages() int {
	return until(func() error {
		var p [2]int
		if err := unix.Pipe(p[:]); err != nil {
			return err
		}
		_, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETPIPE_SZ, 1<<20)
		return err
	})
}

func lockedMemory() int {
	return until(func() error {
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 1<<20, 0o600)
		if err != nil {
			return err
		}
		const lock = 11 // SHM_LOCK
		_, err = unix.SysvShmCtl(id, lock, nil)
		return err
	})
}

// workspaceRaces leaves trees behind that turn into links to the host's file
// while somebody removes them.
func workspaceRaces() int {
	target := os.Getenv("MARKER_DIR")
	for i, place := range writablePlaces {
		dir, link := filepath.Join(place, fmt.Sprint("dir-", i)), filepath.Join(place, fmt.Sprint("link-", i))
		if os.MkdirAll(filepath.Join(dir, "deep/er"), 0o700) != nil || os.Symlink(target, link) != nil {
			continue
		}
		go func() {
			for {
				_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}()
	}
	return len(writablePlaces)
}
