package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// inbox writes the files of a call, before its tool starts. Nothing hostile has
// run by then where they go.
type inbox struct {
	program program                  // starts behind the end of the files
	do      func(func() error) error // calls a function where the program's files are seen
	root    *os.Root                 // of the directory, once there is a file
	file    *os.File                 // the last, while bytes of it are to come
	rest    int64                    // how many
	err     error                    // the first; what comes after it is dropped
}

// await has t wait for its files, and p start behind them.
func (t *tool) await(p program) error {
	// Who has ever changed its user may not open what /proc has of it, and the
	// fork of the tool needs this.
	if _, err := oomScore(); err != nil {
		return t.failed(err)
	}
	t.inbox = &inbox{program: p, do: t.do}
	return nil
}

// takeFile takes a frame of the files that come before a tool.
func (a *agent) takeFile(f wire.Frame) error {
	t := a.tool
	if t == nil || t.stream != f.Stream || t.inbox == nil && !t.isOver() {
		return fmt.Errorf("%w: %v on stream %d, where no file is to come", wire.ErrFrame, f.Kind, f.Stream)
	}
	if t.isOver() {
		return nil // it was on its way
	}
	end, err := t.inbox.take(f)
	if err != nil || !end {
		return err
	}
	in := t.inbox
	t.inbox = nil
	if in.err != nil {
		return t.failed(in.err)
	}
	return a.launch(t, in.program)
}

// take takes one frame and tells whether it was the end. An error is a broken
// rule.
func (in *inbox) take(f wire.Frame) (end bool, err error) {
	if len(f.Payload) == 0 {
		return false, fmt.Errorf("%w: an empty %v", wire.ErrFrame, f.Kind)
	}
	op, data := wire.FileOp(f.Payload[0]), f.Payload[1:]
	switch {
	case op == wire.FileBegin && in.rest == 0:
		var file wire.File
		if err := json.Unmarshal(data, &file); err != nil || file.Size < 0 || strings.Contains(file.Name, "/") {
			return false, fmt.Errorf("%w: %v that cannot be", wire.ErrFrame, f.Kind)
		}
		in.rest = file.Size
		in.try(func() error { return in.begin(file.Name) })
	case op == wire.FileData && int64(len(data)) <= in.rest:
		in.rest -= int64(len(data))
		in.try(func() error {
			_, err := in.file.Write(data)
			return err
		})
	case op != wire.FileEnd || in.rest > 0:
		return false, fmt.Errorf("%w: %v out of turn", wire.ErrFrame, f.Kind)
	default:
		end = true
	}
	if in.rest == 0 && in.file != nil {
		in.try(in.file.Close)
		in.file = nil
	}
	if end && in.root != nil {
		in.try(in.root.Close)
	}
	return end, nil
}

// try calls f where the files are, unless something has failed.
func (in *inbox) try(f func() error) {
	if in.err != nil {
		return
	}
	switch err := in.do(f); {
	case errors.Is(err, unix.ENOSPC):
		in.err = &execError{"its files do not fit on its disk"}
	case err != nil:
		in.err = fmt.Errorf("write the files of the call: %w", err)
	}
}

// begin makes a file, and the directory before the first. Both are the tool's.
func (in *inbox) begin(name string) error {
	p := &in.program
	if in.root == nil {
		if err := p.own(); err != nil {
			return err
		}
	}
	return as(p.UID, p.GID, func() (err error) {
		if in.root == nil {
			if err := os.Mkdir(p.in, 0o755); err != nil {
				return err
			}
			if in.root, err = os.OpenRoot(p.in); err != nil {
				return err
			}
		}
		in.file, err = in.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		return err
	})
}

// as calls f as another user, whose is what f makes. The agent owns none of the
// tool's directories, and has no capability to write into what is not its own.
func as(uid, gid int, f func() error) error {
	if os.Geteuid() != 0 || uid == 0 && gid == 0 {
		return f()
	}
	runtime.LockOSThread()
	if err := setEffective(uid, gid); err != nil {
		return err // and the thread, whatever it is by now, ends with its goroutine
	}
	err := f()
	if back := setEffective(0, 0); back != nil {
		return errors.Join(err, back)
	}
	runtime.UnlockOSThread()
	return err
}

// setEffective changes the calling thread's effective user and group, in the
// order that the way there and the way back need.
func setEffective(uid, gid int) error {
	const same = ^uintptr(0)
	setUser := func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
			return userError("user", uid, errno)
		}
		return nil
	}
	if uid == 0 {
		if err := setUser(); err != nil {
			return err
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, same, uintptr(gid), same); errno != 0 {
		return userError("group", gid, errno)
	}
	if uid != 0 {
		return setUser()
	}
	return nil
}
