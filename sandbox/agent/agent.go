package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// Config says where an agent finds its things. Every field is required.
type Config struct {
	// In and Out are the two directions of the connection to the host.
	In  io.Reader
	Out io.Writer
	// Workspace, Home and Tmp are the tool's writable places.
	Workspace, Home, Tmp string
	// Cells says that the sandbox serves many calls, one after the other, each
	// in a cell. The agent is process 1 then and has the capabilities to make
	// namespaces and to mount.
	Cells bool
	// Secrets says that a tmpfs is mounted at [wire.DirSecrets]. An agent of cells
	// mounts one itself when it is needed.
	Secrets bool
}

// Run is the agent's whole life. It returns nil when the host closed the
// connection, and an error when the connection broke or its rules were broken.
// The caller ends the process then, which ends the tool.
//
// It changes the whole process (signals, resource limits) and is for a process
// of its own.
func Run(cfg Config) error {
	setUp(cfg.Cells)
	a := &agent{cfg: cfg, out: wire.NewWriter(cfg.Out), ended: make(chan error, 1)}
	hello := wire.Hello{Version: wire.Version, Build: build(), PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid()}
	if err := a.out.JSON(wire.KindHello, 0, hello); err != nil {
		return fmt.Errorf("agent: say hello: %w", err)
	}
	// Nobody waits for this goroutine and those of the tool: the end of the
	// process is theirs, and must not wait for a pipe that is stuck.
	go func() { a.end(a.serve(wire.NewReader(cfg.In))) }()
	err := <-a.ended
	if os.Getpid() != 1 {
		// Nobody else ends the tool. Process 1 leaves that to the kernel.
		KillTree(os.Getpid(), killTreeTimeout)
	}
	return err
}

// killTreeTimeout bounds how long an agent that is not process 1 tries to end
// what its tool left behind.
const killTreeTimeout = 10 * time.Second

// agent is one connection to one host.
type agent struct {
	cfg   Config
	out   *wire.Writer
	ended chan error // written by end, read once by Run
	once  sync.Once

	// serve's alone:
	tool    *tool  // the last start
	next    *cell  // made ahead, for the start to come
	seccomp []byte // of the tools in cells

	secrets   []wire.Secret // for the start to come
	secretsOf uint32        // and its stream
}

// end ends the agent's life, the first time it is called.
func (a *agent) end(err error) {
	a.once.Do(func() { a.ended <- err })
}

// serve takes the host's frames until there are no more. It never waits for
// the tool, so it sees the host's end at once.
func (a *agent) serve(r *wire.Reader) error {
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = a.frame(f)
		}
		if err != nil {
			return fmt.Errorf("agent: %w", err)
		}
	}
}

func (a *agent) frame(f wire.Frame) error {
	switch f.Kind {
	case wire.KindPing:
		return a.out.Frame(wire.KindPong, f.Stream, f.Payload)
	case wire.KindPrepare:
		return a.prepare(f)
	case wire.KindSecret:
		return a.secret(f)
	case wire.KindStart:
		return a.start(f)
	case wire.KindFile:
		return a.takeFile(f)
	case wire.KindStdin, wire.KindStdinClose, wire.KindSignal, wire.KindData, wire.KindStreamCredit, wire.KindEnd, wire.KindReset:
		if a.tool == nil || a.tool.stream != f.Stream {
			return fmt.Errorf("%w: %v on stream %d, where nothing was started", wire.ErrFrame, f.Kind, f.Stream)
		}
		return a.tool.frame(f)
	default:
		return fmt.Errorf("%w: %v from a host", wire.ErrFrame, f.Kind)
	}
}

// prepare makes the next cell ahead, after the end of the run that there may
// be. It does not wait for it.
func (a *agent) prepare(f wire.Frame) error {
	if !a.cfg.Cells || a.next != nil {
		return fmt.Errorf("%w: %v, where no cell is to be made", wire.ErrFrame, f.Kind)
	}
	var want wire.Cell
	if err := wire.Decode(f, &want); err != nil {
		return err
	}
	if len(want.Seccomp) > 0 {
		a.seccomp = want.Seccomp
	}
	after := make(chan struct{})
	if a.tool != nil {
		after = a.tool.over
	} else {
		close(after)
	}
	a.next = newCell(want, after)
	return nil
}

// start starts the tool and returns; goroutines carry it from there. It is a
// broken rule to start a second one where there are no cells, or no cell is
// prepared, or the one before runs.
func (a *agent) start(f wire.Frame) error {
	if a.tool != nil && (!a.cfg.Cells || !a.tool.isOver()) || a.cfg.Cells && a.next == nil {
		return fmt.Errorf("%w: a start out of turn", wire.ErrFrame)
	}
	var s wire.Start
	err := wire.Decode(f, &s)
	if err != nil {
		return err
	}
	if len(s.Seccomp) == 0 {
		s.Seccomp = a.seccomp
	}
	t := &tool{stream: f.Stream, out: a.out, stdin: newStdin(), cell: a.next, over: make(chan struct{}), program: a.program(s)}
	a.tool, a.next = t, nil
	p := t.program // whose secrets nobody keeps
	if p.secrets, err = a.takeSecrets(f.Stream); err != nil {
		return err
	}
	if s.Files {
		return t.await(p)
	}
	return a.launch(t, p)
}

// launch starts p, which is t's program with its secrets.
func (a *agent) launch(t *tool, p program) error {
	l, err := t.launch(p)
	if err != nil {
		return t.failed(err)
	}
	t.pid = l.pid
	if err := a.out.JSON(wire.KindStarted, t.stream, wire.Started{PID: l.pid}); err != nil {
		return err
	}
	t.streams = newStreams(t.stream, a.out, l.listeners)
	go func() {
		if err := t.run(l, []string{a.cfg.Workspace, a.cfg.Home, a.cfg.Tmp}); err != nil {
			a.end(fmt.Errorf("agent: %w", err))
		}
	}()
	return nil
}

// notStarted tells the author's mistake from the operator's.
func notStarted(err error) wire.Exit {
	if e, ok := errors.AsType[*execError](err); ok {
		return wire.Exit{NotStarted: e.Error()}
	}
	return wire.Exit{Failed: err.Error()}
}

// build names this binary: the commit it was built from, where that is known.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}

// Stdio returns the process's own stdin and stdout as the connection. They are
// made non-blocking, so that a host which does not read holds up no thread: a
// tool that ate all processes would leave none to take its place.
func Stdio() (in, out *os.File, err error) {
	for fd := range 2 {
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, nil, fmt.Errorf("agent: stdio: %w", err)
		}
	}
	return os.NewFile(0, "host"), os.NewFile(1, "host"), nil
}
