package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// self is this program, for starting it once more.
const self = "/proc/self/exe"

// agent is the process that everything here descends from.
const agent = "/proc/1"

// attempt is one way out or up.
type attempt struct {
	// name is lower-case-with-dashes. Once published it stays.
	name string
	// opens says what an open attempt would mean.
	opens string
	try   func(bait) outcome
}

// attempts are all of them, in the order in which they are tried.
var attempts = slices.Concat(
	mountAttempts, namespaceAttempts, agentAttempts, privilegeAttempts,
	kernelAttempts, timeAttempts, abiAttempts, deviceAttempts, procAttempts,
	sysAttempts, fileAttempts, linkAttempts, networkAttempts, familyAttempts,
)

// outcome is how an attempt ended.
type outcome struct {
	word   string // "denied", "open" or "absent"
	reason string
}

func denied(err error) outcome { return outcome{"denied", err.Error()} }

func open(format string, args ...any) outcome {
	return outcome{"open", fmt.Sprintf(format, args...)}
}

func absent(format string, args ...any) outcome {
	return outcome{"absent", fmt.Sprintf(format, args...)}
}

// errNoEffect is a call that returned without an error and changed nothing.
var errNoEffect = errors.New("it had no effect")

// judge tells an error from an attempt that got through.
func judge(err error, effect string) outcome {
	switch {
	case errors.Is(err, unix.ENOSYS):
		return absent("no such call in this kernel")
	case err != nil:
		return denied(err)
	}
	return open("%s", effect)
}

// first makes one attempt out of several: open when one of them is, absent
// when all are.
func first(outcomes ...outcome) outcome {
	best := outcomes[0]
	for _, o := range outcomes {
		switch o.word {
		case "open":
			return o
		case "denied":
			best = o
		}
	}
	return best
}

// each is first over the attempts of one kind.
func each[T any](things []T, try func(T) outcome) outcome {
	outcomes := make([]outcome, 0, len(things))
	for _, t := range things {
		outcomes = append(outcomes, try(t))
	}
	return first(outcomes...)
}

// call makes a system call that has no function of its own. Arguments that are
// pointers must be kept alive by the caller.
func call(nr uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

// descriptor judges a call that makes a file descriptor, which is the effect.
func descriptor(fd uintptr, err error, what string) outcome {
	if err == nil {
		_ = unix.Close(int(fd))
	}
	return judge(err, "got "+what)
}

// readable is open when a file gives a byte.
func readable(path string) outcome {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return denied(err)
	}
	defer f.Close()
	var b [64]byte
	if n, err := f.Read(b[:]); n == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = fmt.Errorf("%s is empty", path)
		}
		return denied(err)
	}
	return open("read %s", path)
}

// writable is open when a file opens for writing. Nothing is written: for what
// is tried here, to open is to have the right.
func writable(path string) outcome {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return denied(err)
	}
	_ = f.Close()
	return open("opened %s for writing", path)
}

// creatable is open when a file can be made at path.
func creatable(path string) outcome {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return denied(err)
	}
	_ = f.Close()
	_ = os.Remove(path)
	return open("made %s", path)
}

// gVisor tells whether the kernel here is gVisor, which always says the same of
// itself.
func gVisor() bool { return strings.Contains(readAll("/proc/version"), "Jan 10 15:06:54 PST 2016") }
