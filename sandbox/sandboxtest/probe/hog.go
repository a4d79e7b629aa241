package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// This file holds the modes that take too much of something. A mode that goes
// on for ever is ended by a limit or by the test; the others print how much they
// got to stdout.

// took reports how much was taken and the error that ended it.
func took(n int, err error) int {
	fmt.Println(n)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// balloons are the ways to take memory.
var balloons = map[string]func() error{
	"anonymous": func() error {
		b, err := unix.Mmap(-1, 0, balloonSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		return touch(b, err)
	},
	"shared": func() error {
		b, err := unix.Mmap(-1, 0, balloonSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
		return touch(b, err)
	},
	"sysv": func() error {
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, balloonSize, unix.IPC_CREAT|0o600)
		if err != nil {
			return err
		}
		return touch(unix.SysvShmAttach(id, 0, 0))
	},
	"memfd": func() error {
		fd, err := unix.MemfdCreate("balloon", 0)
		if err != nil {
			return err
		}
		block := make([]byte, 1<<20)
		for range balloonSize >> 20 {
			if _, err := unix.Write(fd, block); err != nil {
				return err
			}
		}
		return nil
	},
	"pipes": func() error {
		block := make([]byte, 64<<10)
		for {
			var fds [2]int
			if err := unix.Pipe2(fds[:], unix.O_NONBLOCK); err != nil {
				return err
			}
			if _, err := unix.Write(fds[1], block); err != nil {
				return err
			}
		}
	},
	"sockets": func() error {
		block := make([]byte, 64<<10)
		for {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			for err == nil { // until it is full
				_, err = unix.Write(fds[0], block)
			}
		}
	},
}

// balloonSize is more than any limit of the suite.
const balloonSize = 1 << 30

func touch(b []byte, err error) error {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return err
}

// balloon takes memory of a kind. It ends only by an error.
func balloon(args []string) int {
	return took(0, balloons[args[0]]())
}

// readAll reads every file of the image many times, which fills the page cache
// of whoever pays for it.
func readAll() int {
	n := 0
	block := make([]byte, 1<<20)
	for range 20 {
		_ = filepath.WalkDir("/", func(path string, e fs.DirEntry, err error) error {
			if path == "/proc" || path == "/sys" || path == "/dev" {
				return fs.SkipDir
			}
			if err != nil || !e.Type().IsRegular() {
				return nil
			}
			f, err := os.Open(path)
			if err != nil {
				return nil
			}
			defer f.Close()
			for m := 1; m > 0; n += m {
				m, _ = f.Read(block)
			}
			return nil
		})
	}
	return took(n, nil)
}

// lookUp looks for many names that are not there, each of which the kernel
// remembers.
func lookUp(args []string) int {
	var st unix.Stat_t
	for i := range atoi(args[0]) {
		_ = unix.Stat("/no-such-file-"+strconv.Itoa(i), &st)
	}
	return 0
}

// spin uses all the processor time it can get, on all processors, for so many
// milliseconds.
func spin(args []string) int {
	end := time.Now().Add(time.Duration(atoi(args[0])) * time.Millisecond)
	runtime.GOMAXPROCS(runtime.NumCPU() + 1)
	for range runtime.NumCPU() {
		go func() {
			for { //nolint:staticcheck // to spin is what it is for
			}
		}()
	}
	<-time.After(time.Until(end))
	return 0
}

// files are the ways to open a file that is none.
var files = map[string]func() error{
	"pipe":      func() error { var fds [2]int; return unix.Pipe2(fds[:], 0) },
	"socket":    func() error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0); return err },
	"eventfd":   func() error { _, err := unix.Eventfd(0, 0); return err },
	"epoll":     func() error { _, err := unix.EpollCreate1(0); return err },
	"memfd":     func() error { _, err := unix.MemfdCreate("x", 0); return err },
	"timerfd":   func() error { _, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0); return err },
	"inotify":   func() error { _, err := unix.InotifyInit(); return err },
	"/dev/null": func() error { _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); return err },
}

// openFiles opens files of a kind until one is refused, says how many, and keeps
// them until it is killed. So many children do the same, who start first: to
// start one takes a file as well.
func openFiles(args []string) int {
	for range atoi(args[1]) {
		if _, err := spawn("open", args[0], "0", args[2]); err != nil {
			return took(0, err)
		}
	}
	n := 0
	var err error
	for ; err == nil; n++ {
		err = files[args[0]]()
	}
	fmt.Fprintf(os.Stderr, "%d %v\n", n-1, err)
	return stop()
}

// watches takes inotify watches until one is refused.
func watches() int {
	fd, err := unix.InotifyInit()
	n := 0
	for ; err == nil; n++ {
		name := os.TempDir() + "/w" + strconv.Itoa(n)
		if err = os.WriteFile(name, nil, 0o600); err == nil {
			_, err = unix.InotifyAddWatch(fd, name, unix.IN_ACCESS)
		}
	}
	return took(n-1, err)
}

// locks takes so many locks in each of so many files.
func locks(args []string) int {
	n := 0
	for i := range atoi(args[0]) {
		f, err := os.Create(os.TempDir() + "/l" + strconv.Itoa(i))
		if err != nil {
			return took(n, err)
		}
		for j := range atoi(args[1]) {
			l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * j), Len: 1}
			if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &l); err != nil {
				return took(n, err)
			}
			n++
		}
	}
	return took(n, nil)
}

// deep makes directories in one another until it may not.
func deep(args []string) int {
	n := 0
	err := os.Chdir(args[0])
	for ; err == nil; n++ {
		if err = unix.Mkdir("d", 0o700); err == nil {
			err = unix.Chdir("d")
		}
	}
	return took(n-1, err)
}

// links makes links of a kind until it may not.
func links(args []string) int {
	link := map[string]func(string, string) error{"symbolic": os.Symlink, "hard": os.Link}[args[0]]
	target := os.TempDir() + "/target"
	err := os.WriteFile(target, nil, 0o600)
	n := 0
	for ; err == nil; n++ {
		err = link(target, os.TempDir()+"/n"+strconv.Itoa(n))
	}
	return took(n-1, err)
}

// sparse makes a file of a size far beyond the disk, and reads some of what is
// not there.
func sparse() int {
	f, err := os.Create(os.TempDir() + "/sparse")
	if err == nil {
		err = f.Truncate(1 << 40)
	}
	block := make([]byte, 1<<20)
	for i := int64(0); i < 1000 && err == nil; i++ {
		_, err = f.ReadAt(block, i<<30)
	}
	return took(0, err)
}

// mapped writes into a sparse file through memory: a full disk is a signal then.
func mapped() int {
	f, err := os.Create(os.TempDir() + "/mapped")
	if err == nil {
		err = f.Truncate(balloonSize)
	}
	if err != nil {
		return took(0, err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, balloonSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return took(0, touch(b, err))
}

// places prints the directories in which a file can be made, and the files that
// can be written though they are no devices.
func places() int {
	var found []string
	_ = filepath.WalkDir("/", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case e.IsDir():
			name := path + "/.probe"
			if err := os.WriteFile(name, nil, 0o600); err == nil {
				_ = os.Remove(name)
				found = append(found, path)
				return fs.SkipDir
			}
		case isFile(path) && !strings.HasPrefix(path, "/proc/"):
			if fd, err := unix.Open(path, unix.O_WRONLY, 0); err == nil {
				_ = unix.Close(fd)
				found = append(found, path)
			}
		}
		return nil
	})
	slices.Sort(found)
	fmt.Println(strings.Join(found, "\n"))
	return 0
}

// isFile asks the file itself: a device that is mounted on a file stands in its
// directory as a file.
func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// fillAll fills each of its arguments and prints how many bytes it got in all.
func fillAll(args []string) int {
	total := 0
	for _, dir := range args {
		f, err := os.Create(dir + "/fill")
		if err != nil {
			continue // full already
		}
		block := make([]byte, 4096)
		for err == nil {
			var n int
			n, err = f.Write(block)
			total += n
		}
	}
	return took(total, unix.ENOSPC)
}

// work does, again and again, a little of all that a limit could refuse, and
// says so after each round. It ends only when something was refused.
func work() int {
	again := time.NewTicker(20 * time.Millisecond)
	for {
		if err := round(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Fprint(os.Stderr, "r")
		<-again.C
	}
}

func round() error {
	pid, err := spawn("exit", "0")
	if err != nil {
		return fmt.Errorf("start a process: %w", err)
	}
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); err == nil {
			break
		}
	}
	name := os.TempDir() + "/work"
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	fd, err := unix.InotifyInit()
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	if _, err := unix.InotifyAddWatch(fd, name, unix.IN_ACCESS); err != nil {
		return fmt.Errorf("inotify watch: %w", err)
	}
	b, err := unix.Mmap(-1, 0, 8<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err := touch(b, err); err != nil {
		return err
	}
	if err := unix.Munmap(b); err != nil {
		return err
	}
	if err := unix.Close(fd); err != nil {
		return err
	}
	return os.Remove(name)
}
