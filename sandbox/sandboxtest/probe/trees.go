package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file holds the modes whose processes are hard to end. Each takes a mark
// as its last argument and says "leaf" to stderr when all is in place.

func leaf() int {
	fmt.Fprint(os.Stderr, "leaf\n")
	return stop()
}

// refork starts a process that starts itself anew and exits, for ever.
func refork(args []string) int {
	if args[0] == "child" {
		if _, err := spawn("refork", "child", args[1]); err != nil {
			return refork(args)
		}
		return 0
	}
	if _, err := spawn("refork", "child", args[1]); err != nil {
		return 1
	}
	return leaf()
}

// stopped stops itself; a child sees that, says so, and stops too.
func stopped(args []string) int {
	if _, err := spawn("stopped-child", args[0]); err != nil {
		return 1
	}
	if unix.Kill(os.Getpid(), unix.SIGSTOP) != nil {
		return 1
	}
	return stop()
}

// stoppedChild looks for its parent by the mark: where /proc is the host's, the
// numbers in it are others.
func stoppedChild(args []string) int {
	for !isStopped(args[0]) {
		runtime.Gosched()
	}
	fmt.Fprint(os.Stderr, "leaf\n")
	_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	return stop()
}

func isStopped(mark string) bool {
	want := []byte("\x00stopped\x00" + mark + "\x00")
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file)
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		if bytes.HasSuffix(line, want) && bytes.Contains(stat, []byte(") T ")) {
			return true
		}
	}
	return false
}

// vforked hangs in a vfork: the kernel lets the parent go on when the child
// ends, and the child never does.
func vforked([]string) int {
	fmt.Fprint(os.Stderr, "leaf\n")
	runtime.LockOSThread()
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_VFORK|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return 1
	}
	for pid == 0 { // the child has this thread only
		_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	return 0
}

// traced has a child that is stopped by its tracer, where that is allowed.
func traced(args []string) int {
	runtime.LockOSThread()
	_, err := syscall.ForkExec("/proc/self/exe", []string{"probe", "stop", args[0]}, &syscall.ProcAttr{
		Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		fmt.Println(err)
	}
	return leaf()
}

// deaf ignores every signal that can be ignored.
func deaf([]string) int {
	for sig := range syscall.Signal(65) {
		signal.Ignore(sig)
	}
	return leaf()
}

// listen has a grandchild that listens, and says where.
func listen(args []string) int {
	if args[0] != "0" {
		if _, err := spawn("listen", strconv.Itoa(atoi(args[0])-1), args[1]); err != nil {
			return 1
		}
		return stop()
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	fmt.Fprintf(os.Stderr, "leaf %d\n", l.Addr().(*net.TCPAddr).Port)
	return stop()
}

// graceful ends by itself, with a code and some words, when it is asked to.
func graceful(args []string) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, unix.SIGTERM)
	if _, err := spawn("stop", args[1]); err != nil {
		return 1
	}
	fmt.Print("begun, ")
	fmt.Fprint(os.Stderr, "leaf\n")
	<-asked
	fmt.Print("and put away")
	return atoi(args[0])
}
