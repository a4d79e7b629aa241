package sandbox

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// exit puts together what is known of a run that has ended.
func (r *run) exit(usage Usage) Exit {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := verdict(r.first, usage)
	if r.began.IsZero() { // what never ran was not killed
		e.Signal, e.KilledBy = "", ""
	}
	e.Stdout, e.Stderr = r.stdout, r.stderr.bytes()
	e.StdoutBytes, e.StderrBytes = r.wrote, r.stderr.total
	e.Result, e.ExtraResults = r.result, r.extra
	e.LeftOut, e.LeftOutMore = r.files.left, r.files.more
	if r.files.rest > 0 { // the agent was lost in the middle of it
		e.LeftOut = append(e.LeftOut, LeftOut{printable(r.files.name), "did not come whole"})
	}
	if r.wrote > r.limit {
		e.Truncated = append(e.Truncated, "stdout")
	}
	if r.stderr.dropped > 0 {
		e.Truncated = append(e.Truncated, "stderr")
	}
	e.Usage = usage
	e.Started, e.Ended = r.began, r.over
	return e
}

// failure returns an error when the run never began, or was cut off, through no
// fault of the tool or its author. Precondition: the run has ended.
func (r *run) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.first.unread != nil:
		return r.first.unread
	case r.first.cause == "" && r.first.exit != nil && r.first.exit.Failed != "":
		return fmt.Errorf("sandbox: the agent could not start the tool: %s", r.first.exit.Failed)
	case r.first.lost != nil && r.began.IsZero():
		return fmt.Errorf("sandbox: the agent was lost before the tool started: %w", r.first.lost)
	case errors.Is(r.first.lost, ErrLost):
		return fmt.Errorf("sandbox: the agent was lost while the tool ran: %w", r.first.lost)
	}
	return nil
}

// verdict decides what ended a tool. What this side did comes first: a tool
// that we killed was not killed by anybody else. Then come the limits, which
// make a tool fail in ways of its own: a failed allocation, a fork that was
// refused, a write that found no space. A tool that met a limit and succeeded
// all the same has succeeded.
func verdict(first ending, usage Usage) Exit {
	switch {
	case first.cause != "":
		return ended(first)
	case first.unread != nil:
		return Exit{Cause: CauseNotStarted, Detail: "a file of the call could not be had"}
	case first.lost != nil && usage.OOMKills > 0:
		return Exit{Cause: CauseOutOfMemory, Detail: "the whole sandbox ran out of memory", Signal: signalName(int(unix.SIGKILL)), KilledBy: KilledByKernel}
	case first.lost != nil && usage.PidsRefused > 0:
		return Exit{Cause: CausePidsLimit, Detail: "the whole sandbox ran out of processes"}
	case first.lost != nil:
		return Exit{Cause: CauseProtocol, Detail: lostDetail(first.lost)}
	}
	x := first.exit
	e := Exit{Cause: CauseExited, Code: x.Code, OutputHeld: x.Held}
	if x.Signal != 0 {
		e.Cause, e.Signal, e.KilledBy = CauseSignaled, signalName(x.Signal), killer(x, usage)
	}
	e.Met = met(x, usage)
	switch failed := x.Code != 0 || x.Signal != 0; {
	case x.NotStarted != "" || x.Failed != "":
		e.Cause, e.Detail = CauseNotStarted, x.NotStarted+x.Failed
	case failed && e.Met != "":
		e.Cause = e.Met
	case x.LongMessage:
		e.Cause, e.Detail = CauseProtocol, "it wrote a line to fd 3 that is too long"
	}
	return e
}

// ended is the end of a tool that this side brought about: by SIGKILL, unless
// the tool used its grace to end by itself.
func ended(first ending) Exit {
	e := Exit{Cause: first.cause, Detail: first.detail, Signal: signalName(int(unix.SIGKILL)), KilledBy: KilledByFleet}
	switch x := first.exit; {
	case x == nil:
	case x.Signal != 0:
		e.Signal = signalName(x.Signal)
	default:
		e.Code, e.Signal, e.KilledBy, e.OutputHeld = x.Code, "", "", x.Held
	}
	return e
}

// killer tells who sent the signal that ended a tool which we did not end. The
// out-of-memory killer sends SIGKILL and counts it; a tool that aborts because
// it got no memory has ended itself.
func killer(x *wire.Exit, usage Usage) Killer {
	if x.Signal == int(unix.SIGKILL) && usage.OOMKills > 0 {
		return KilledByKernel
	}
	return KilledByTool
}

// met tells which limit the tool ran into. Memory and disk share one cgroup:
// the pages of a full tmpfs may be what ran it out of memory, so the disk is
// asked first.
func met(x *wire.Exit, usage Usage) Cause {
	switch {
	case x.DiskFull:
		return CauseDiskLimit
	case usage.OOMKills > 0:
		return CauseOutOfMemory
	case usage.PidsRefused > 0:
		return CausePidsLimit
	}
	return ""
}

// lostDetail says how an agent was lost after its tool had started. A tool
// cannot end its agent while the lock-down holds, so this is either a breach or
// somebody outside.
func lostDetail(err error) string {
	if errors.Is(err, io.EOF) {
		return "the sandbox's agent went away while the tool ran"
	}
	return "the sandbox's agent broke its protocol: " + err.Error()
}

// signalName is the signal's name, such as "SIGKILL".
func signalName(n int) string {
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}
