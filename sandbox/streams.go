package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// Listeners are loopback addresses inside the sandbox on which a tool finds what
// it may reach. The agent only forwards; whatever is spoken there is spoken by
// Serve.
type Listeners struct {
	// Addresses are at most [wire.MaxListeners]. One that cannot be listened on
	// fails the start.
	Addresses []wire.Listener
	// Serve serves a connection to the address with that index, in a goroutine of
	// its own, and closes it. For a datagram, the connection has its bytes, and
	// each Write is one datagram back. There are at most [wire.MaxStreams] calls
	// at once. ctx ends when the tool gave the connection up and when the run
	// ends; [Sandbox.Run] waits for every Serve to return.
	Serve func(ctx context.Context, listener int, conn *Stream)
}

// streams are the connections of one run.
type streams struct {
	Listeners

	run  uint32
	out  *wire.Writer
	ctx  context.Context
	stop context.CancelFunc
	// slots bounds the calls of Serve. A stream that its tool gave up leaves the
	// live ones at once and its Serve some moments later.
	slots   chan struct{}
	serving sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	live   map[uint32]*Stream
	last   uint32
	closed bool
	held   int           // bytes that came and were not carried on, of all streams
	idle   chan struct{} // nil until somebody waits for held to be 0
}

// newStreams makes the streams of a run whose number is not known yet, or nil for
// one that has none.
func newStreams(ctx context.Context, l Listeners, out *wire.Writer) *streams {
	if len(l.Addresses) == 0 {
		return nil
	}
	s := &streams{Listeners: l, out: out, slots: make(chan struct{}, wire.MaxStreams), live: make(map[uint32]*Stream)}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// frame takes a frame of a stream. An error is a broken rule. It does not wait
// for the tool, nor for what the tool has connected to.
func (s *streams) frame(f wire.Frame) error {
	if s == nil {
		return fmt.Errorf("%w: %v, where nothing listens", wire.ErrFrame, f.Kind)
	}
	id, rest, err := wire.DecodeStream(f)
	if err != nil {
		return err
	}
	if f.Kind == wire.KindOpen {
		return s.open(id, wire.DecodeOpen(rest))
	}
	s.mu.Lock()
	c, known := s.live[id]
	last := s.last
	s.mu.Unlock()
	switch {
	case id > last:
		return fmt.Errorf("%w: %v of a stream that was not opened", wire.ErrFrame, f.Kind)
	case !known:
		return nil // it was on its way
	}
	switch f.Kind {
	case wire.KindData:
		return c.take(rest)
	case wire.KindStreamCredit:
		n, err := wire.DecodeStreamCredit(rest)
		if err != nil {
			return err
		}
		return c.addCredit(n)
	case wire.KindEnd:
		return c.takeEnd()
	default:
		c.die(errReset)
		return nil
	}
}

// hold counts bytes that came, or that were carried on.
func (s *streams) hold(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held += n; s.held == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// drained returns a channel that is closed when all that came was carried on.
func (s *streams) drained() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := make(chan struct{})
	if s.held == 0 {
		close(idle)
	} else {
		s.idle = idle
	}
	return idle
}

// open serves a new stream.
func (s *streams) open(id uint32, listener int) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	if id <= s.last || listener >= len(s.Addresses) || len(s.live) >= wire.MaxStreams {
		s.mu.Unlock()
		return fmt.Errorf("%w: a stream that cannot be opened", wire.ErrFrame)
	}
	c := newStream(s, id)
	s.last, s.live[id] = id, c
	// Under mu, so that end, which sets closed, waits for it.
	s.serving.Add(1)
	s.mu.Unlock()
	s.slots <- struct{}{} // whoever has one and is dead gives it back soon
	go func() {
		defer s.serving.Done()
		defer func() { <-s.slots }()
		defer func() { _ = c.Close() }() // mostly closed by then
		s.Serve(c.ctx, listener, c)
	}()
	return nil
}

func (s *streams) forget(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, id)
}

// end breaks all streams and returns a channel that is closed when every Serve
// has returned.
func (s *streams) end() <-chan struct{} {
	ended := make(chan struct{})
	if s == nil {
		close(ended)
		return ended
	}
	s.mu.Lock()
	s.closed = true
	all := make([]*Stream, 0, len(s.live))
	for _, c := range s.live {
		all = append(all, c)
	}
	s.mu.Unlock()
	s.stop()
	for _, c := range all {
		c.die(errEnded)
	}
	go func() {
		defer close(ended)
		s.serving.Wait()
	}()
	return ended
}

// lingerTime is how long what a tool has sent before its end may take to be
// carried on: a program may send something, close and exit, and be right to think
// that it has been sent.
const lingerTime = time.Second

// endStreams ends the streams of a run that is over. A Serve that cannot return
// because the agent does not read ends with the sandbox.
func (s *Sandbox) endStreams(ctx context.Context, r *run) {
	if r.streams == nil {
		return
	}
	if r.isEmpty() && !r.stopped() {
		linger, done := context.WithTimeout(ctx, lingerTime)
		_ = waitFor(linger, r.streams.drained())
		done()
	}
	ended := r.streams.end()
	bounded, cancel := context.WithTimeout(ctx, agentKillTimeout)
	defer cancel()
	if waitFor(bounded, ended) == nil {
		return
	}
	s.mu.Lock()
	s.spent = true
	s.mu.Unlock()
	_ = s.inst.Kill(ctx)
	<-ended
}

// streamFrame takes a frame of one of the run's streams, without mu: what serves
// them may take its time with a new one.
func (r *run) streamFrame(f wire.Frame) error {
	r.mu.Lock()
	closed, runs := r.closed, !r.began.IsZero() && !r.hasExited
	r.mu.Unlock()
	switch {
	case closed:
		return nil
	case !runs:
		return fmt.Errorf("%w: %v of a tool that does not run", wire.ErrFrame, f.Kind)
	}
	return r.streams.frame(f)
}
