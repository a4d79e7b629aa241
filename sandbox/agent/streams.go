package agent

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// streams are the connections of one run. The agent forwards bytes between
// sockets of the sandbox and the host, and knows neither names nor addresses nor
// any protocol.
//
// Nothing here waits for the tool but goroutines that are a connection's own, and
// nothing holds more than the windows allow.
type streams struct {
	run       uint32
	out       *wire.Writer
	listeners []listener
	listening sync.WaitGroup // a goroutine for each listener
	running   sync.WaitGroup // two for each connection

	mu     sync.Mutex // guards the fields below
	live   map[uint32]flow
	last   uint32
	closed bool
}

// flow is one open stream, as frames from the host meet it. None of its methods
// waits.
type flow interface {
	data(b []byte) error
	credit(n int)
	end()
	reset()
}

// newStreams begins to listen for the run, or returns nil where there is nothing
// to listen on.
func newStreams(run uint32, out *wire.Writer, listeners []listener) *streams {
	if len(listeners) == 0 {
		return nil
	}
	raiseFileLimit()
	s := &streams{run: run, out: out, listeners: listeners, live: make(map[uint32]flow)}
	for i, l := range listeners {
		if l.datagram {
			s.listening.Go(func() { s.receive(i, l) })
		} else {
			s.listening.Go(func() { s.accept(i, l) })
		}
	}
	return s
}

// raiseFileLimit undoes for the agent what the tool's limit on open files did to
// it: it has a file for each connection of the tool.
func raiseFileLimit() {
	var limit unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit) == nil {
		limit.Cur = limit.Max
		_ = unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil)
	}
}

// pause is how long the agent waits with the next connection when it has no file
// for it.
const pause = 10 * time.Millisecond

// accept opens a stream for each connection, until the listener has stopped and
// those that had come before are taken.
func (s *streams) accept(listener int, l listener) {
	for {
		fd, err := l.accept()
		switch {
		case err == nil:
			s.open(listener, fd)
		case errors.Is(err, errStopped):
			return
		case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS):
			<-time.After(pause)
		}
	}
}

// open opens a stream for a connection, or refuses the connection when there are
// too many.
func (s *streams) open(listener, fd int) {
	c := newConnection(s, fd)
	if !s.add(func(id uint32) flow { c.id = id; return c }) {
		c.abort()
		return
	}
	if s.send(wire.KindOpen, wire.OpenPayload(c.id, listener)) != nil {
		c.abort()
		return
	}
	s.running.Go(c.read)
	s.running.Go(c.write)
}

// maxDatagram is more than a question for a name has.
const maxDatagram = 4 << 10

// receive opens a stream for each datagram, until the listener has stopped.
// Datagrams that are too many are dropped.
func (s *streams) receive(listener int, l listener) {
	buf := make([]byte, wire.StreamPrefix+maxDatagram)
	for {
		n, from, err := l.receive(buf[wire.StreamPrefix:])
		if err != nil || n == 0 {
			if errors.Is(err, errStopped) {
				return
			}
			continue
		}
		d := datagram{s: s, l: l, from: from}
		if !s.add(func(id uint32) flow { d.id = id; return d }) {
			continue
		}
		prefix := wire.StreamPayload(d.id)
		copy(buf, prefix)
		_ = s.out.Frames(
			wire.Frame{Kind: wire.KindOpen, Stream: s.run, Payload: wire.OpenPayload(d.id, listener)},
			wire.Frame{Kind: wire.KindData, Stream: s.run, Payload: buf[:wire.StreamPrefix+n]},
			wire.Frame{Kind: wire.KindEnd, Stream: s.run, Payload: prefix})
	}
}

// datagram is a stream for the answers to one.
type datagram struct {
	s    *streams
	id   uint32
	l    listener
	from unix.Sockaddr
}

func (d datagram) data(b []byte) error { d.l.reply(d.from, b); return nil }
func (d datagram) credit(int)          {}
func (d datagram) end()                { d.s.forget(d.id) }
func (d datagram) reset()              { d.s.forget(d.id) }

// add gives what begin returns the next number, unless there are too many.
func (s *streams) add(begin func(id uint32) flow) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.live) >= wire.MaxStreams {
		return false
	}
	s.last++
	s.live[s.last] = begin(s.last)
	return true
}

func (s *streams) forget(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, id)
}

// send sends a frame. When that fails the connection to the host is broken, and
// whoever reads it says so.
func (s *streams) send(kind wire.Kind, payload []byte) error {
	return s.out.Frame(kind, s.run, payload)
}

// frame takes a frame from the host. One for a stream that has ended here was
// under way.
func (s *streams) frame(f wire.Frame) error {
	if s == nil {
		return fmt.Errorf("%w: %v, where nothing listens", wire.ErrFrame, f.Kind)
	}
	id, rest, err := wire.DecodeStream(f)
	if err != nil {
		return err
	}
	s.mu.Lock()
	to, known := s.live[id]
	last := s.last
	s.mu.Unlock()
	switch {
	case id > last:
		return fmt.Errorf("%w: %v of a stream that was not opened", wire.ErrFrame, f.Kind)
	case !known:
		return nil
	}
	switch f.Kind {
	case wire.KindData:
		return to.data(rest)
	case wire.KindStreamCredit:
		n, err := wire.DecodeStreamCredit(rest)
		to.credit(n)
		return err
	case wire.KindEnd:
		to.end()
	default:
		to.reset()
	}
	return nil
}

// drainTime is how long a connection has, after the end of the tool, to be read
// to its end. The other end of it is dead, so nothing is waited for.
const drainTime = 200 * time.Millisecond

// end ends all streams, after the end of the tool. What the tool wrote before is
// sent, as far as the windows reach; nothing of the run is sent after end has
// returned.
func (s *streams) end() {
	if s == nil {
		return
	}
	for _, l := range s.listeners {
		l.stop()
	}
	s.listening.Wait()
	closeListeners(s.listeners)
	s.mu.Lock()
	s.closed = true
	var left []*connection
	for _, f := range s.live {
		if c, ok := f.(*connection); ok {
			left = append(left, c)
		}
	}
	s.mu.Unlock()
	for _, c := range left {
		c.finish()
	}
	s.running.Wait()
}
