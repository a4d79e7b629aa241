package agent

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// program is what launch starts: a start frame with every default filled in.
type program struct {
	wire.Start
	path   string   // Argv[0], once it was looked up
	places []string // the tool's own directories
	in     string   // where files of the call are put
	out    string   // where the tool leaves files

	secrets []wire.Secret
	inCell  bool
}

// launched is a tool that runs, and the agent's ends of its pipes.
type launched struct {
	pid                     int
	stdin                   *os.File
	stdout, stderr, message *os.File
	listeners               []listener
}

// launch starts p, locked down.
//
// Go gives no hook between fork and exec, and its wrappers for credentials
// change every thread. But in Linux credentials, capabilities, no_new_privs and
// seccomp filters belong to a thread, and a child inherits those of the thread
// that forked it. So a thread of its own is locked down with raw system calls,
// forks the tool, and dies: its goroutine ends without unlocking it. The Go
// runtime never starts new threads from a locked one, so nothing else in the
// agent inherits from it.
//
// The other way, executing the agent again as a launcher that locks itself
// down, costs a second start of a Go program in every call.
func launch(p program) (*launched, error) {
	return withOOMScore(p.OOMScoreAdj, func() (l *launched, err error) {
		done := make(chan struct{})
		go onNewThread(func() {
			defer close(done)
			l, err = lockDownAndFork(p)
		})
		<-done
		return l, err
	})
}

// lockDownAndFork locks the calling thread down for good and starts p from it.
func lockDownAndFork(p program) (_ *launched, err error) {
	p.lookUp() // in a cell, here is where its files are seen
	if err := p.own(); err != nil {
		return nil, err
	}
	if err := p.putSecrets(); err != nil {
		return nil, err
	}
	listeners, err := listenAll(p.Listen)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeListeners(listeners)
		}
	}()
	if err := dropPrivileges(p.UID, p.GID); err != nil {
		return nil, err
	}
	// Made by the tool's user, so that it may open /dev/stdout and the like.
	pipes, err := newPipes()
	if err != nil {
		return nil, err
	}
	defer pipes.closeTheirs()
	defer func() {
		if err != nil {
			pipes.closeOurs()
		}
	}()
	if err := setRlimits(p.Rlimits); err != nil {
		return nil, err
	}
	if err := loadSeccomp(p.Seccomp); err != nil {
		return nil, err
	}
	pid, err := syscall.ForkExec(p.path, p.Argv, &syscall.ProcAttr{
		Dir:   p.Dir,
		Env:   p.Env,
		Files: pipes.theirs[:],
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, newExecError(p, err)
	}
	return &launched{pid: pid, stdin: pipes.ours[0], stdout: pipes.ours[1], stderr: pipes.ours[2], message: pipes.ours[toolFD], listeners: listeners}, nil
}

// toolFD is the number under which the tool finds the pipe for its messages:
// the place after stderr in pipes.
const toolFD = 3

// pipes are the tool's stdin, stdout, stderr and messages.
type pipes struct {
	theirs [toolFD + 1]uintptr
	ours   [toolFD + 1]*os.File
}

func newPipes() (*pipes, error) {
	p := new(pipes)
	for i := range p.ours {
		var fds [2]int // read, write
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			p.closeOurs()
			p.closeTheirs()
			return nil, fmt.Errorf("make pipes: %w", err)
		}
		ours, theirs := fds[0], fds[1]
		if i == 0 {
			ours, theirs = theirs, ours
		}
		// Non-blocking belongs to one end only: the tool's stays as programs
		// expect it.
		_ = unix.SetNonblock(ours, true)
		p.ours[i] = os.NewFile(uintptr(ours), "tool")
		p.theirs[i] = uintptr(theirs)
	}
	return p, nil
}

func (p *pipes) closeTheirs() {
	for _, fd := range p.theirs {
		if fd != 0 { // 0 is the agent's own stdin, never a pipe of ours
			_ = unix.Close(int(fd))
		}
	}
}

func (p *pipes) closeOurs() {
	for _, f := range p.ours {
		if f != nil {
			_ = f.Close()
		}
	}
}
