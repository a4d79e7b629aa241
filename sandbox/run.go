package sandbox

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// pollInterval is how often a running tool's refused forks are looked at.
const pollInterval = 500 * time.Millisecond

// errRanBefore is a mistake of the caller.
var errRanBefore = errors.New("sandbox: a sandbox serves one call, and this one has had it")

// Run runs p, the one call of this sandbox, or the next one of a sandbox that is
// [Sandbox.Reusable], and tells how it ended. The end of ctx kills it. After Run
// has returned, sink is not called any more.
//
// Every end of a tool is an [Exit], and so is every trick a tool may play on
// its agent: if that made an error, a hostile tool would be tried again and
// again. An error is a failure of ours; when the Exit beside it has no Started,
// no tool has run. Whatever the tool wrote before its end is kept.
//
// When Run returns, no process of the call is left: either the agent has seen
// all of them end, or the sandbox was killed and seen empty.
func (s *Sandbox) Run(ctx context.Context, p Process, sink Sink) (Exit, error) {
	r := newRun(p, sink)
	r.streams = newStreams(ctx, p.Listeners, s.out)
	var filter []byte
	if !s.cells() { // cells have theirs already
		filter = s.seccomp()
	}
	start, err := newStart(p, s.hello, filter)
	if err := s.begin(r); err != nil {
		return Exit{}, err
	}
	if err != nil {
		return s.unrun(ending{cause: CauseNotStarted, detail: err.Error()}), nil
	}
	if ctx.Err() != nil {
		return s.unrun(ending{cause: CauseStopped}), nil
	}
	opening := r.opening(p.Secrets, start)
	switch {
	case len(p.Files) > 0:
		filesCtx, done := context.WithCancel(ctx)
		defer done()
		go r.feedFiles(filesCtx, s.out, opening, p, s.last(r))
	case p.Input != nil:
		go r.converse(s.out, opening, p, s.last(r))
	default:
		go r.feed(s.out, opening, p.Stdin, s.last(r))
	}
	s.watch(ctx, r, p.Linger)
	return s.finish(ctx, r, p.Grace)
}

// unrun ends the last run before anything of it was sent.
func (s *Sandbox) unrun(e ending) Exit {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.run.fed)
	<-s.run.streams.end()
	s.run.end(e)
	s.spent = true
	return s.run.exit(Usage{})
}

// begin makes r the sandbox's run.
func (s *Sandbox) begin(r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil && (!s.cells() || s.spent || !s.run.isClosed()) {
		return errRanBefore
	}
	s.run, s.served = r, s.served+1
	r.stream = s.served
	if r.streams != nil {
		r.streams.run = r.stream
	}
	return nil
}

// watch waits for the end of r and brings it about when it has to.
func (s *Sandbox) watch(ctx context.Context, r *run, linger time.Duration) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	var forks forkWatch
	quiet, lingered := r.quiet, (<-chan time.Time)(nil)
	for {
		select {
		case <-r.ended:
			return
		case <-quiet:
			quiet = nil
			if linger > 0 {
				lingered = time.After(linger)
			}
		case <-lingered:
			r.end(ending{cause: CauseFinished})
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
func (s *Sandbox) finish(ctx context.Context, r *run, grace time.Duration) (Exit, error) {
	killCtx, cancel := detached(ctx, grace+killTimeout)
	defer cancel()
	if grace > 0 && r.stopped() {
		s.ask(killCtx, r, grace)
	}
	killed := r.isEmpty() || s.kill(killCtx, r) == nil
	// No more frames from here on, also when the stream goes on.
	r.close()
	s.endStreams(killCtx, r)

	// A tool's end stands without its counters, if less precisely.
	usageCtx, cancelUsage := detached(ctx, usageTimeout)
	defer cancelUsage()
	usage, _ := s.inst.Usage(usageCtx)
	usage = s.used(usage)
	exit, err := r.exit(usage), r.failure()
	if !killed {
		// Still the end of the tool: an error would let a tool that is hard to
		// kill be tried again. Close tries again to kill it and has the cause.
		exit.Detail = strings.TrimSpace(exit.Detail + " (not all of its processes could be seen to end)")
	}
	s.settle(usageCtx, r, exit, err)
	return exit, err
}

// The signals that this side sends.
const (
	sigTerm = 15
	sigKill = 9
)

func (s *Sandbox) signal(ctx context.Context, r *run, sig byte) error {
	return s.send(ctx, wire.KindSignal, r.stream, []byte{sig})
}

// ask asks the tool to end and gives it time to.
func (s *Sandbox) ask(ctx context.Context, r *run, grace time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if s.signal(ctx, r, sigTerm) != nil {
		return
	}
	select {
	case <-r.exited:
	case <-s.lost:
	case <-ctx.Done():
	}
}

// agentKillTimeout is how long an agent may take to end what its tool started.
// It takes a few milliseconds; an agent that cannot is killed with it. While
// files come that the tool left it may take so long again, and filesTimeout at
// the most.
const (
	agentKillTimeout = 5 * time.Second
	filesTimeout     = 20 * time.Second
)

// kill ends all of r and returns when it is seen to be empty and what the tool
// wrote before has come. The agent is asked first: it reads what is still in the
// tool's pipes, which is lost when the agent is killed with the tool.
func (s *Sandbox) kill(ctx context.Context, r *run) error {
	if s.killByAgent(ctx, r) && r.isEmpty() {
		return nil
	}
	if err := s.inst.Kill(ctx); err != nil {
		return err
	}
	return waitFor(ctx, s.gone)
}

// killByAgent has the agent end all that the tool started, and reports whether
// it said how the tool ended.
func (s *Sandbox) killByAgent(ctx context.Context, r *run) bool {
	ctx, cancel := context.WithTimeout(ctx, filesTimeout)
	defer cancel()
	r.doom()
	soon, done := context.WithTimeout(ctx, agentKillTimeout)
	defer done()
	if s.signal(soon, r, sigKill) != nil {
		return false
	}
	look := time.NewTicker(agentKillTimeout)
	defer look.Stop()
	for filed := r.filed(); ; {
		select {
		case <-r.exited:
			return true
		case <-s.lost:
			return false
		case <-ctx.Done():
			return false
		case <-look.C:
			before := filed
			if filed = r.filed(); filed == before {
				return false
			}
		}
	}
}

// last are the frames that follow the stdin of r.
func (s *Sandbox) last(r *run) []wire.Frame {
	frames := []wire.Frame{{Kind: wire.KindStdinClose, Stream: r.stream}}
	if s.cells() && r.stream < maxServed {
		if next, err := s.nextCell(); err == nil {
			frames = append(frames, next)
		}
	}
	return frames
}

// feed sends the opening, the stdin and the last frames of r; the first chunk of
// stdin, which mostly is all, goes out with it. It ends with r, or when
// the stream breaks, which the reader sees as well.
func (r *run) feed(out *wire.Writer, frames []wire.Frame, stdin []byte, last []wire.Frame) {
	defer close(r.fed)
	for {
		if len(stdin) > 0 {
			n := r.window(min(len(stdin), wire.MaxChunk))
			if n == 0 {
				return
			}
			frames = append(frames, wire.Frame{Kind: wire.KindStdin, Stream: r.stream, Payload: stdin[:n]})
			stdin = stdin[n:]
		}
		if len(stdin) == 0 {
			frames = append(frames, last...)
		}
		if err := out.Frames(frames...); err != nil {
			r.end(ending{lost: err})
			return
		}
		if len(stdin) == 0 {
			r.prepared = len(last) > 1
			return
		}
		frames = frames[:0]
	}
}
