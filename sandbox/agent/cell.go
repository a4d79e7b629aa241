package agent

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// cell is what one call has for itself inside a container that serves many: pid,
// mount, ipc, uts and network namespaces, the four writable places on a tmpfs
// of its own, a /proc of its own. The root is the container's, which is
// read-only, so it needs no overlay; the user namespace is the container's too.
//
// Namespaces belong to a thread in Linux. So a cell is a thread of the agent:
// it unshares, mounts, forks the cell's init, waits for the call, locks itself
// down, forks the tool, and dies with the cell. No second Go program is
// started for it, which would cost more than all the rest.
//
// The init comes first and is pid 1 of the new pid namespace, the tool comes
// second; both are children of the agent. Killing the init ends everything
// that the tool started, however it hid, and the kernel reports the init's end
// only after the last of them is gone.
type cell struct {
	want wire.Cell

	made chan struct{} // closed once err and init are set
	err  error
	init int
	work chan func()   // for the thread
	over chan struct{} // closed by end
	gone chan struct{} // closed when the thread has looked at full and ends

	// Valid once gone is closed:
	full bool
	used bool // there are files on the disk
	tid  int  // of the thread
}

// newCell begins to make a cell once after is closed, and does not wait for
// that. Call end once.
func newCell(want wire.Cell, after <-chan struct{}) *cell {
	c := &cell{
		want: want, made: make(chan struct{}), work: make(chan func()),
		over: make(chan struct{}), gone: make(chan struct{}),
	}
	go func() {
		<-after
		onNewThread(c.live)
	}()
	return c
}

// live is the cell's thread.
func (c *cell) live() {
	defer close(c.gone)
	c.err = c.make()
	close(c.made)
	for working := true; working; {
		select {
		case f := <-c.work:
			f()
		case <-c.over:
			working = false
		}
	}
	c.full = anyFull([]string{wire.DirTmp})
	var st unix.Statfs_t
	c.used = unix.Statfs(wire.DirTmp, &st) == nil && st.Bfree < st.Blocks
	c.tid = unix.Gettid()
}

// do has the cell's thread call f, unless the cell could not be made.
func (c *cell) do(f func() error) error {
	<-c.made
	if c.err != nil {
		return c.err
	}
	done := make(chan error, 1)
	c.work <- func() { done <- f() }
	return <-done
}

// launch starts p in the cell.
func (c *cell) launch(p program) (*launched, error) {
	<-c.made
	p.inCell = true
	return withOOMScore(p.OOMScoreAdj, func() (l *launched, err error) {
		err = c.do(func() (err error) {
			l, err = lockDownAndFork(p)
			return err
		})
		return l, err
	})
}

// empty kills all that runs in the cell and sees that nothing is left.
func (c *cell) empty() {
	<-c.made
	if c.init == 0 {
		return
	}
	_ = unix.Kill(c.init, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(c.init, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// end ends an empty cell and tells whether its disk was full.
func (c *cell) end() (full bool) {
	close(c.over)
	<-c.gone
	if c.used {
		c.awaitDisk()
	}
	return c.full
}

// awaitDisk waits for the end of the thread, which gives the memory of the
// cell's files back: it would be counted as the next call's. It takes longer
// than all else in the end of a cell, and most have no file.
func (c *cell) awaitDisk() {
	for end := time.Now().Add(endTimeout); time.Now().Before(end); {
		if unix.Tgkill(os.Getpid(), c.tid, 0) != nil {
			return
		}
		<-time.After(100 * time.Microsecond)
	}
}

// kill ends the tool and all that it started. end must still be called.
func (c *cell) kill() {
	<-c.made
	if c.init > 0 {
		_ = unix.Kill(c.init, unix.SIGKILL)
	}
}

// The new namespaces of a cell, beside the one for pids.
const cellNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET

// make makes the cell around the calling thread.
func (c *cell) make() error {
	err := unix.Unshare(cellNamespaces | unix.CLONE_NEWPID)
	// gVisor gives the children of a single thread no pid namespace.
	alone := errors.Is(err, unix.EINVAL)
	if alone {
		err = unix.Unshare(cellNamespaces)
	}
	if err != nil {
		return fmt.Errorf("make a cell: namespaces: %w", err)
	}
	loopbackUp()
	if err := c.mountPlaces(); err != nil {
		return fmt.Errorf("make a cell: %w", err)
	}
	if err := c.startInit(alone); err != nil {
		return fmt.Errorf("make a cell: start its init: %w", err)
	}
	if err := mountProc(alone); err != nil {
		return fmt.Errorf("make a cell: mount /proc: %w", err)
	}
	if err := hideProc(); err != nil {
		return fmt.Errorf("make a cell: %w", err)
	}
	return nil
}

// startInit starts the cell's init. It needs no privilege at all, and inherits
// nothing: no file, no environment. It leads a session of its own.
//
// When alone, the pid namespace is made with it, and the thread joins it for its
// later children. Who joins must be allowed to trace the init, so there it stays
// the agent's user; a tool of that user without its capabilities may not.
func (c *cell) startInit(alone bool) error {
	fd := -1
	sys := &syscall.SysProcAttr{Setsid: true}
	if alone {
		sys.Cloneflags, sys.PidFD = unix.CLONE_NEWPID, &fd
	} else {
		sys.Credential = &syscall.Credential{Uid: initUser, Gid: initUser}
	}
	pid, err := syscall.ForkExec(InitPath, []string{"init"}, &syscall.ProcAttr{Dir: "/", Sys: sys})
	c.init = pid
	if err != nil || !alone {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Setns(fd, unix.CLONE_NEWPID)
}

// initUser is the init's user and group, nobody, whom no tool gets unless it
// asks for it, and nothing is gained by it.
const initUser = 65534

// onNewThread calls f on a thread that is f's alone and ends with it. The main
// thread would not end, and is what /proc shows of the agent; when it is the
// one at hand it is held until another was found.
func onNewThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		f()
		return // still locked: the thread ends
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		onNewThread(f)
	}()
	<-done
}
