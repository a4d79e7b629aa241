package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

var (
	errReset = errors.New("sandbox: connection reset by the tool")
	errEnded = errors.New("sandbox: connection of a run that is over")
)

// Stream is the host's end of a connection that a tool has made. It is a
// [net.Conn]; reads and writes may come from one goroutine each, everything else
// from any. It holds at most [wire.StreamWindow] bytes that came and were not
// read, and twice that in [Stream.WriteTo].
type Stream struct {
	s      *streams
	id     uint32
	ctx    context.Context
	cancel context.CancelFunc

	readable, writable chan struct{} // hold one token when something has changed
	readBy, writeBy    deadline

	mu     sync.Mutex // guards the fields below
	in     []byte     // came and was not read
	owed   int        // came and was not credited
	held   int        // came and was not carried on
	read   int        // read and not credited
	credit int        // bytes that may be sent
	inEnd  bool       // the tool sends no more
	outEnd bool       // this side sends no more
	dead   error
}

var _ net.Conn = (*Stream)(nil)

func newStream(s *streams, id uint32) *Stream {
	c := &Stream{
		s: s, id: id, credit: wire.StreamWindow,
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
	}
	c.readBy.passed, c.writeBy.passed = make(chan struct{}), make(chan struct{})
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	return c
}

// wake puts a token for whoever waits.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take takes data from the agent.
func (c *Stream) take(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inEnd || c.owed+len(b) > wire.StreamWindow {
		return fmt.Errorf("%w: data of a stream after its end or beyond its window", wire.ErrFrame)
	}
	if c.dead != nil {
		return nil
	}
	c.owed += len(b)
	c.held += len(b)
	c.s.hold(len(b))
	c.in = append(c.in, b...)
	wake(c.readable)
	return nil
}

func (c *Stream) addCredit(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credit += n; c.credit > wire.StreamWindow {
		return fmt.Errorf("%w: credit for more than was sent", wire.ErrFrame)
	}
	wake(c.writable)
	return nil
}

func (c *Stream) takeEnd() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inEnd {
		return fmt.Errorf("%w: a second end of a stream", wire.ErrFrame)
	}
	c.inEnd = true
	c.forgetLocked()
	wake(c.readable)
	return nil
}

// forgetLocked forgets a stream that both sides have ended: no frame of it comes
// any more.
func (c *Stream) forgetLocked() {
	if c.inEnd && c.outEnd {
		c.s.forget(c.id)
	}
}

// die ends both directions.
func (c *Stream) die(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead == nil {
		c.dead, c.in = err, nil
		c.s.hold(-c.held)
		c.s.forget(c.id)
		c.cancel()
	}
	wake(c.readable)
	wake(c.writable)
}

// Read reads what the tool has sent. io.EOF says that it sends no more.
func (c *Stream) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n := 0
	err := c.await(func() {
		n = copy(b, c.in)
		if c.in = c.in[n:]; len(c.in) == 0 {
			c.in = nil
		}
	})
	if err != nil {
		return 0, err
	}
	return n, c.taken(n)
}

// WriteTo carries all that the tool sends to w, without a buffer between.
func (c *Stream) WriteTo(w io.Writer) (sum int64, err error) {
	var batch []byte
	for {
		err := c.await(func() { batch, c.in = c.in, batch[:0] })
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		if err != nil {
			return sum, err
		}
		n, err := w.Write(batch)
		sum += int64(n)
		if err != nil {
			return sum, err
		}
		if err := c.taken(n); err != nil {
			return sum, err
		}
	}
}

// await waits until something came and calls use, with mu held.
func (c *Stream) await(use func()) error {
	for {
		c.mu.Lock()
		switch {
		case c.dead != nil:
			defer c.mu.Unlock()
			return c.dead
		case len(c.in) > 0:
			use()
			c.mu.Unlock()
			return nil
		case c.inEnd:
			c.mu.Unlock()
			return io.EOF
		}
		c.mu.Unlock()
		select {
		case <-c.readable:
		case <-c.readBy.wait():
			return os.ErrDeadlineExceeded
		}
	}
}

// creditEvery is how much is read before the agent is told.
const creditEvery = wire.StreamWindow / 4

// taken notes that n bytes were read.
func (c *Stream) taken(n int) error {
	c.mu.Lock()
	if c.dead == nil {
		c.held -= n
		c.s.hold(-n)
	}
	c.read += n
	credit := c.read
	if credit < creditEvery || c.inEnd {
		c.mu.Unlock()
		return nil
	}
	c.read = 0
	c.owed -= credit
	c.mu.Unlock()
	return c.s.out.Frame(wire.KindStreamCredit, c.s.run, wire.StreamCredit(c.id, credit))
}

// outBuffers hold a data frame's payload each.
var outBuffers = sync.Pool{New: func() any { return new([wire.MaxChunk]byte) }}

// Write sends b to the tool, as fast as the tool takes it.
func (c *Stream) Write(b []byte) (sum int, err error) {
	for len(b) > 0 {
		n, err := c.window(min(len(b), wire.MaxStreamData))
		if err != nil {
			return sum, err
		}
		buf := outBuffers.Get().(*[wire.MaxChunk]byte)
		copy(buf[:], wire.StreamPayload(c.id))
		copy(buf[wire.StreamPrefix:], b[:n])
		err = c.s.out.Frame(wire.KindData, c.s.run, buf[:wire.StreamPrefix+n])
		outBuffers.Put(buf)
		if err != nil {
			return sum, err
		}
		sum += n
		b = b[n:]
	}
	return sum, nil
}

// window waits until some of n bytes may be sent, and takes their credit.
func (c *Stream) window(n int) (int, error) {
	for {
		c.mu.Lock()
		err := c.dead
		if err == nil && c.outEnd {
			err = net.ErrClosed
		}
		n := min(n, c.credit)
		if err == nil {
			c.credit -= n
		}
		c.mu.Unlock()
		if err != nil || n > 0 {
			return n, err
		}
		select {
		case <-c.writable:
		case <-c.writeBy.wait():
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// CloseWrite tells the tool that no more comes.
func (c *Stream) CloseWrite() error {
	c.mu.Lock()
	if c.outEnd || c.dead != nil {
		c.mu.Unlock()
		return nil
	}
	c.outEnd = true
	c.forgetLocked()
	c.mu.Unlock()
	return c.s.out.Frame(wire.KindEnd, c.s.run, wire.StreamPayload(c.id))
}

// Close ends both directions. What was written before still reaches the tool.
func (c *Stream) Close() error {
	err := c.CloseWrite()
	return errors.Join(err, c.reset(net.ErrClosed))
}

// Reset breaks the connection: the tool sees that it was not closed in order.
func (c *Stream) Reset() error { return c.reset(net.ErrClosed) }

func (c *Stream) reset(why error) error {
	c.mu.Lock()
	over := c.dead != nil || c.inEnd && c.outEnd
	c.mu.Unlock()
	c.die(why)
	if over {
		return nil
	}
	return c.s.out.Frame(wire.KindReset, c.s.run, wire.StreamPayload(c.id))
}

// streamAddr is the address of either end: a loopback of the sandbox's own, which
// says nothing outside.
type streamAddr struct{}

func (streamAddr) Network() string { return "sandbox" }
func (streamAddr) String() string  { return "sandbox" }

// LocalAddr and RemoteAddr say that it is a sandbox's.
func (c *Stream) LocalAddr() net.Addr { return streamAddr{} }

// RemoteAddr is as LocalAddr.
func (c *Stream) RemoteAddr() net.Addr { return streamAddr{} }

// SetDeadline sets both deadlines.
func (c *Stream) SetDeadline(t time.Time) error {
	c.readBy.set(t)
	c.writeBy.set(t)
	return nil
}

// SetReadDeadline ends waiting Reads at t; the zero time is never.
func (c *Stream) SetReadDeadline(t time.Time) error { c.readBy.set(t); return nil }

// SetWriteDeadline ends waiting Writes at t; the zero time is never.
func (c *Stream) SetWriteDeadline(t time.Time) error { c.writeBy.set(t); return nil }

// deadline is a moment that can be moved while others wait for it.
type deadline struct {
	mu     sync.Mutex // guards the fields below
	timer  *time.Timer
	passed chan struct{} // closed when the moment has passed
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	select {
	case <-d.passed:
		d.passed = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	passed := d.passed
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.passed == passed {
				closeOnce(passed)
			}
		})
		return
	}
	closeOnce(passed)
}

// closeOnce closes c unless it is closed. The caller holds what guards it.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
