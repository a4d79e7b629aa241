package agent

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// tool is the one tool of this sandbox, from its start to its exit frame.
type tool struct {
	stream uint32
	out    *wire.Writer
	stdin  *stdin
}

// run carries the streams of a launched tool until its main process ends, then
// sends the exit frame. writable are the places whose free space tells a full
// disk. An error is the connection's.
//
// The main process decides: what it left running (a daemon, a child that holds
// the pipes) delays nothing, for the host ends the whole sandbox next.
func (t *tool) run(l *launched, writable []string) error {
	status := reap(l.pid)
	go t.stdin.run(l.stdin, t.credit)

	lines := &splitter{send: func(line []byte) error { return t.out.Frame(wire.KindMessage, t.stream, line) }}
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

	exit := wire.Exit{DiskFull: anyFull(writable)}
	if ended.Signaled() {
		exit.Signal = int(ended.Signal())
	} else {
		exit.Code = ended.ExitStatus()
	}
	errs := []error{lines.end()}
	exit.LongMessage = lines.long
	for _, p := range pumps {
		exit.Held = exit.Held || p.held
		errs = append(errs, p.err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("send the tool's output: %w", err)
	}
	return t.out.JSON(wire.KindExit, t.stream, exit)
}

// send returns a function that sends pieces of one stream.
func (t *tool) send(kind wire.Kind) func([]byte) error {
	return func(piece []byte) error { return t.out.Frame(kind, t.stream, piece) }
}

// credit tells the host that n bytes of stdin are off the agent's hands. When
// that fails the connection is broken, and whoever reads it says so.
func (t *tool) credit(n int) {
	_ = t.out.Frame(wire.KindStdinCredit, t.stream, wire.Credit(n))
}

// reap waits for every child there is and will be, and answers how main ended.
// It is the only place that waits: a second one would steal its children's
// ends. It stops when no child is left, since only descendants of the tool can
// become the agent's children, and then none lives.
func reap(main int) <-chan unix.WaitStatus {
	status := make(chan unix.WaitStatus, 1)
	go func() {
		for {
			var ws unix.WaitStatus
			pid, err := unix.Wait4(-1, &ws, 0, nil)
			switch {
			case err == nil && pid == main:
				status <- ws
			case err != nil && !errors.Is(err, unix.EINTR):
				return
			}
		}
	}()
	return status
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
