package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Another way into the kernel is another table of calls, which a filter made
// for one does not know.
var abiAttempts = []attempt{
	{name: "i386-calls", opens: "the tool makes calls by the 32-bit table", try: func(bait) outcome { return inFork(i386Getpid, "32-bit") }},
	{name: "x32-calls", opens: "the tool makes calls by the x32 table", try: func(bait) outcome { return inFork(x32Getpid, "x32") }},
	{name: "odd-personality", opens: "the tool turns address randomisation off for what it runs", try: personality},
}

// inFork asks for the process's number in a child that has one thread, since a
// filter may kill who asks. The child runs no Go but a system call and its exit.
func inFork(getpid func() int64, table string) outcome {
	if getpid == nil {
		return absent("this architecture has one table of calls")
	}
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return open("cannot tell: %v", errno)
	}
	if pid == 0 {
		code := uintptr(1)
		if own, _, _ := unix.RawSyscall(unix.SYS_GETPID, 0, 0, 0); getpid() == int64(own) {
			code = 0
		}
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, code, 0, 0)
		}
	}
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(int(pid), &ws, 0, nil); err != unix.EINTR {
			break
		}
	}
	switch {
	case ws.Signaled() && ws.Signal() == unix.SIGSEGV:
		return absent("the kernel takes no %s calls", table)
	case ws.Signaled():
		return denied(fmt.Errorf("killed by %v", ws.Signal()))
	case ws.ExitStatus() != 0:
		return denied(fmt.Errorf("the %s getpid gave no number", table))
	}
	return open("the %s getpid answered", table)
}

// personality: READ_IMPLIES_EXEC, ADDR_NO_RANDOMIZE, MMAP_PAGE_ZERO and the
// 32-bit personality PER_LINUX32_3GB.
func personality(bait) outcome {
	return each([]uintptr{0x0400000, 0x0040000, 0x0100000, 0x8000008}, func(p uintptr) outcome {
		_, err := call(unix.SYS_PERSONALITY, p)
		if now, nerr := call(unix.SYS_PERSONALITY, 0xffffffff); nerr == nil && now == p {
			return open("the personality is %#x", now)
		}
		if err == nil {
			err = errNoEffect
		}
		return denied(err)
	})
}
