package sandbox

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// runStream is the stream of the one run of a sandbox. The numbers above it are
// for cells, which serve one call each in one container.
const runStream = 1

// pollInterval is how often a running tool's refused forks are looked at.
const pollInterval = 500 * time.Millisecond

// errRanBefore is a mistake of the caller.
var errRanBefore = errors.New("sandbox: a sandbox serves one call, and this one has had it")

// Run runs p, the one call of this sandbox, and tells how it ended. The end of
// ctx kills it. After Run has returned, sink is not called any more.
//
// Every end of a tool is an [Exit], and so is every trick a tool may play on
// its agent: if that made an error, a hostile tool would be tried again and
// again. An error is a failure of ours; when the Exit beside it has no Started,
// no tool has run. Whatever the tool wrote before its end is kept.
//
// After an end that Run did not bring about, processes that the tool left
// behind may live until Close.
func (s *Sandbox) Run(ctx context.Context, p Process, sink Sink) (Exit, error) {
	r := newRun(p, sink)
	if err := s.begin(r); err != nil {
		return Exit{}, err
	}
	start, err := newStart(p, s.hello, s.seccomp())
	if err != nil {
		close(r.fed)
		r.end(ending{cause: CauseNotStarted, detail: err.Error()})
		return r.exit(Usage{}), nil
	}
	if ctx.Err() != nil {
		close(r.fed)
		r.end(ending{cause: CauseStopped})
		return r.exit(Usage{}), nil
	}
	go r.feed(s.out, start, p.Stdin)
	s.watch(ctx, r)
	return s.finish(ctx, r)
}

// begin makes r the sandbox's one run.
func (s *Sandbox) begin(r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil {
		return errRanBefore
	}
	s.run = r
	return nil
}

// watch waits for the end of r and brings it about when it has to.
func (s *Sandbox) watch(ctx context.Context, r *run) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	var forks forkWatch
	for {
		select {
		case <-r.ended:
			return
		case <-ctx.Done():
			r.end(ending{cause: CauseStopped})
		case <-s.lost:
			r.end(ending{lost: s.lostErr})
		case <-poll.C:
			usageCtx, cancel := context.WithTimeout(ctx, usageTimeout)
			usage, err := s.inst.Usage(usageCtx)
			cancel()
			if err == nil && forks.bomb(usage.PidsRefused) {
				r.end(ending{cause: CausePidsLimit, detail: "it kept starting processes beyond its limit"})
			}
		}
	}
}

// forkWatch tells a fork bomb from a tool that met its process limit once: the
// bomb's refused forks keep rising.
type forkWatch struct {
	refused int64
	rises   int
}

func (w *forkWatch) bomb(refused int64) bool {
	if refused > w.refused {
		w.rises++
	} else {
		w.rises = 0
	}
	w.refused = refused
	return w.rises >= 2
}

// finish kills what has to be killed and puts the answer together. It works on
// a context of its own: the call's is over when the call was cancelled.
func (s *Sandbox) finish(ctx context.Context, r *run) (Exit, error) {
	killCtx, cancel := detached(ctx, killTimeout)
	defer cancel()
	killed := true
	if !r.endedByItself() {
		// What the tool wrote before it was killed is still on its way.
		killed = s.inst.Kill(killCtx) == nil && waitFor(killCtx, s.gone) == nil
	}
	// No more frames from here on, also when the stream goes on.
	r.close()

	// A tool's end stands without its counters, if less precisely.
	usageCtx, cancelUsage := detached(ctx, usageTimeout)
	defer cancelUsage()
	usage, _ := s.inst.Usage(usageCtx)
	exit := r.exit(usage)
	if !killed {
		// Still the end of the tool: an error would let a tool that is hard to
		// kill be tried again. Close tries again to kill it and has the cause.
		exit.Detail = strings.TrimSpace(exit.Detail + " (not all of its processes could be seen to end)")
	}
	return exit, r.failure()
}

// feed sends the start and the stdin of r. It ends with r, or when the stream
// breaks, which the reader sees as well.
func (r *run) feed(out *wire.Writer, start, stdin []byte) {
	defer close(r.fed)
	if err := out.Frame(wire.KindStart, runStream, start); err != nil {
		r.end(ending{lost: err})
		return
	}
	for len(stdin) > 0 {
		n := r.window(min(len(stdin), wire.MaxChunk))
		if n == 0 || out.Frame(wire.KindStdin, runStream, stdin[:n]) != nil {
			return
		}
		stdin = stdin[n:]
	}
	_ = out.Frame(wire.KindStdinClose, runStream, nil)
}
