package agent

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// tool is one run of a tool, from its start to its exit frame.
type tool struct {
	stream  uint32
	out     *wire.Writer
	stdin   *stdin
	cell    *cell         // nil: the sandbox is one call's
	streams *streams      // nil: nothing listens for it
	over    chan struct{} // closed just before the exit frame
	program program       // what it is
	inbox   *inbox        // while files come that it waits for
	pid     int           // of the main process, which leads its group
}

// launch starts the tool, in its cell if it has one.
func (t *tool) launch(p program) (*launched, error) {
	if t.cell != nil {
		return t.cell.launch(p)
	}
	return launch(p)
}

// failed tells of a tool that could not be started.
func (t *tool) failed(err error) error {
	t.stdin.drop()
	if t.cell != nil {
		t.cell.empty()
		t.cell.end()
	}
	return t.exit(notStarted(err))
}

// isOver tells whether the exit frame is being sent or was.
func (t *tool) isOver() bool {
	select {
	case <-t.over:
		return true
	default:
		return false
	}
}

// frame takes a frame for a tool that was started.
func (t *tool) frame(f wire.Frame) error {
	switch f.Kind {
	case wire.KindStdinClose:
		t.stdin.close()
		return nil
	case wire.KindStdin:
		return t.stdin.add(f.Payload)
	case wire.KindData, wire.KindStreamCredit, wire.KindEnd, wire.KindReset:
		return t.streams.frame(f)
	}
	if len(f.Payload) != 1 {
		return fmt.Errorf("%w: %v of %d bytes", wire.ErrFrame, f.Kind, len(f.Payload))
	}
	switch {
	case t.isOver():
	case t.pid > 0:
		t.signal(unix.Signal(f.Payload[0]))
	case t.inbox != nil:
		t.inbox = nil
		return t.failed(&execError{"it was stopped while its files came"})
	}
	return nil
}

// run carries the streams of a launched tool until its main process ends, ends
// all that it left behind, sends its files, then the exit frame. writable are
// the places whose free space tells a full disk. An error is the connection's.
//
// The main process decides: what it left running (a daemon, a child that holds
// the pipes) delays nothing.
func (t *tool) run(l *launched, writable []string) error {
	status, none := t.reap()
	go t.stdin.run(l.stdin, t.credit)

	lines := &splitter{send: func(line []byte) error { return t.out.Later(wire.KindMessage, t.stream, line) }}
	pumps := []*pump{
		newPump(l.stdout, t.send(wire.KindStdout)),
		newPump(l.stderr, t.send(wire.KindStderr)),
		newPump(l.message, lines.add),
	}
	var running sync.WaitGroup
	for _, p := range pumps {
		running.Go(p.run)
	}
	ended := <-status
	for _, p := range pumps {
		p.stop()
	}
	running.Wait()

	exit := wire.Exit{}
	if ended.Signaled() {
		exit.Signal = int(ended.Signal())
	} else {
		exit.Code = ended.ExitStatus()
	}
	exit.DiskFull, exit.Left = t.end(none, writable)
	t.streams.end()
	t.stdin.end(l.stdin)
	errs := []error{lines.end(!ended.Signaled() && exit.Code == 0), t.sendFiles(exit.Left)}
	if t.cell != nil {
		exit.DiskFull = t.cell.end()
	}
	exit.LongMessage = lines.long
	for _, p := range pumps {
		exit.Held = exit.Held || p.held
		errs = append(errs, p.err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("send the tool's output: %w", err)
	}
	return t.exit(exit)
}

// exit sends the exit frame. From then on the host may start the next run.
func (t *tool) exit(e wire.Exit) error {
	close(t.over)
	return t.out.JSON(wire.KindExit, t.stream, e)
}

// endTimeout bounds how long processes that were killed may take to die. A
// process that waits for a broken device may take for ever; then the host ends
// the sandbox.
const endTimeout = 5 * time.Second

// end kills what the tool left behind and sees that nothing of it is left.
// Before, it looks whether the disk is full; a cell looks at its own end.
func (t *tool) end(none <-chan struct{}, writable []string) (full, left bool) {
	if t.cell != nil {
		t.cell.empty()
		return false, false
	}
	full = anyFull(writable)
	if os.Getpid() != 1 {
		return full, !KillTree(os.Getpid(), endTimeout)
	}
	// All processes of the pid namespace but this one, at one stroke: a fork
	// cannot slip through. The reaper has no child left when they are dead.
	_ = unix.Kill(-1, unix.SIGKILL)
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-none:
		return full, false
	case <-timer.C:
		return full, true
	}
}

// signal sends a signal to the tool's process group; SIGKILL goes to everything
// that the tool started. A signal that comes when the tool has ended goes
// nowhere.
func (t *tool) signal(sig unix.Signal) {
	switch {
	case sig != unix.SIGKILL:
		_ = unix.Kill(-t.pid, sig)
	case t.cell != nil:
		t.cell.kill()
	case os.Getpid() == 1:
		_ = unix.Kill(-1, unix.SIGKILL)
	default:
		_ = unix.Kill(t.pid, unix.SIGKILL) // end kills the rest
	}
}

// send returns a function that sends pieces of one stream.
func (t *tool) send(kind wire.Kind) func([]byte) error {
	return func(piece []byte) error { return t.out.Later(kind, t.stream, piece) }
}

// credit tells the host that n bytes of stdin are off the agent's hands. When
// that fails the connection is broken, and whoever reads it says so.
func (t *tool) credit(n int) {
	_ = t.out.Frame(wire.KindStdinCredit, t.stream, wire.Credit(n))
}

// reap answers how the main process ended, and then that no child is left.
//
// A cell's orphans are its init's, so there the main process alone is waited
// for. Anywhere else every child is: they are orphans of the tool, and a second
// place that waits would steal their ends. It stops when no child is left,
// since only descendants of the tool can become the agent's children.
func (t *tool) reap() (status <-chan unix.WaitStatus, none <-chan struct{}) {
	who := -1
	if t.cell != nil {
		who = t.pid
	}
	ended, gone := make(chan unix.WaitStatus, 1), make(chan struct{})
	go func() {
		defer close(gone)
		for {
			var ws unix.WaitStatus
			pid, err := unix.Wait4(who, &ws, 0, nil)
			switch {
			case err == nil && pid == t.pid:
				ended <- ws
				if t.cell != nil {
					return
				}
			case err != nil && !errors.Is(err, unix.EINTR):
				return
			}
		}
	}()
	return ended, gone
}

// What counts as full: programs rarely use the last bytes of a file system.
const (
	fewBytes  = 64 << 10
	fewInodes = 8
)

// anyFull reports whether one of the places has no room for another file. A
// place that does not exist, or that does not count its inodes, is not full.
func anyFull(places []string) bool {
	for _, place := range places {
		var st unix.Statfs_t
		if unix.Statfs(place, &st) != nil {
			continue
		}
		if st.Bavail*uint64(st.Bsize) < fewBytes || st.Files > 0 && st.Ffree < fewInodes {
			return true
		}
	}
	return false
}
