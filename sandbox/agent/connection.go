package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// connection is a stream of one connection: a goroutine for each direction.
type connection struct {
	s    *streams
	id   uint32
	file *os.File
	conn syscall.RawConn

	mu       sync.Mutex // guards the fields below
	changed  *sync.Cond // one of them
	window   int        // bytes that may be sent to the host
	pending  []byte     // bytes from the host
	owed     int        // bytes from the host that were not credited yet
	noMore   bool       // the host sends no more
	over     bool       // the host wants no more, or the socket is broken
	finished bool       // the tool has ended
	halves   int        // goroutines that have returned
}

func newConnection(s *streams, fd int) *connection {
	// A tool that writes little by little waits for its answers; nothing is
	// gained by holding them back.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	c := &connection{s: s, file: os.NewFile(uintptr(fd), "connection"), window: wire.StreamWindow}
	c.changed = sync.NewCond(&c.mu)
	c.conn, _ = c.file.SyscallConn() // fails for a nil file only
	return c
}

// read carries what the tool sends to the host.
func (c *connection) read() {
	defer c.half()
	for {
		room := c.room()
		if room == 0 {
			return
		}
		n, err := c.forward(min(room, wire.MaxStreamData))
		switch {
		case n > 0 && err == nil:
		case errors.Is(err, io.EOF):
			_ = c.s.send(wire.KindEnd, wire.StreamPayload(c.id))
			return
		default:
			c.fail()
			return
		}
	}
}

// room waits until the host takes data, and tells how much. 0 is the end.
func (c *connection) room() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.window == 0 && !c.over && !c.finished {
		c.changed.Wait()
	}
	if c.over {
		return 0
	}
	return c.window
}

// forward reads at most most bytes and sends them. It takes a buffer only when
// there is something to read, so that connections that wait cost none.
func (c *connection) forward(most int) (n int, err error) {
	waited := c.conn.Read(func(s uintptr) bool {
		chunk := chunks.Get().(*[wire.MaxChunk]byte)
		defer chunks.Put(chunk)
		n, err = unix.Read(int(s), chunk[wire.StreamPrefix:wire.StreamPrefix+most])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false
		case err != nil:
		case n == 0:
			err = io.EOF
		default:
			copy(chunk[:], wire.StreamPayload(c.id))
			c.use(n)
			err = c.s.send(wire.KindData, chunk[:wire.StreamPrefix+n])
		}
		return true
	})
	return n, errors.Join(waited, err)
}

// use takes n bytes off the window.
func (c *connection) use(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window -= n
}

// streamCreditEvery is how much is taken before the other side is told.
const streamCreditEvery = wire.StreamWindow / 4

// write carries what the host sends to the tool.
func (c *connection) write() {
	defer c.half()
	var batch []byte
	taken := 0
	for {
		var last bool
		batch, last = c.next(batch)
		if len(batch) > 0 {
			if _, err := c.file.Write(batch); err != nil {
				c.fail()
				return
			}
		}
		if last {
			c.closeWrite()
			return
		}
		if taken += len(batch); taken >= streamCreditEvery {
			c.settle(taken)
			_ = c.s.send(wire.KindStreamCredit, wire.StreamCredit(c.id, taken))
			taken = 0
		}
	}
}

// closeWrite tells the tool that the other side sends no more. A reset that came
// without an end must not look like one.
func (c *connection) closeWrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.noMore {
		_ = c.conn.Control(func(s uintptr) { _ = unix.Shutdown(int(s), unix.SHUT_WR) })
	}
}

// next waits for bytes or for their end, and swaps what is pending for spare.
func (c *connection) next(spare []byte) (batch []byte, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.pending) == 0 && !c.noMore && !c.over {
		c.changed.Wait()
	}
	batch, c.pending = c.pending, spare[:0]
	return batch, c.noMore || c.over
}

// settle takes n bytes off what is owed, before the credit, as in stdin.
func (c *connection) settle(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owed -= n
}

// data takes bytes from the host.
func (c *connection) data(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil // it was on its way
	}
	if c.noMore || c.owed+len(b) > wire.StreamWindow {
		return fmt.Errorf("%w: data of a stream after its end or beyond its window", wire.ErrFrame)
	}
	c.owed += len(b)
	c.pending = append(c.pending, b...)
	c.changed.Broadcast()
	return nil
}

func (c *connection) credit(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.window += n
	c.changed.Broadcast()
}

// end notes that the host sends no more.
func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noMore = true
	c.changed.Broadcast()
}

// reset notes that the host wants no more. After an end what it sent is still
// written; without one the tool sees its connection broken.
func (c *connection) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.noMore {
		c.pending = nil
		c.lingerNot()
	}
	c.over = true
	c.changed.Broadcast()
	_ = c.file.SetReadDeadline(time.Unix(1, 0))
	if !c.noMore {
		_ = c.file.SetWriteDeadline(time.Unix(1, 0))
	}
}

// lingerNot makes the close of the socket a reset, which the tool sees at once.
func (c *connection) lingerNot() {
	_ = c.conn.Control(func(s uintptr) {
		_ = unix.SetsockoptLinger(int(s), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
}

// fail ends a stream whose socket is broken, or that came to its end with the
// tool, unless the host has ended it.
func (c *connection) fail() {
	c.mu.Lock()
	was := c.over
	if !was {
		c.over, c.pending = true, nil
		c.changed.Broadcast()
		_ = c.file.SetDeadline(time.Unix(1, 0))
	}
	c.mu.Unlock()
	if !was {
		_ = c.s.send(wire.KindReset, wire.StreamPayload(c.id))
	}
}

// finish makes both directions end soon: the tool's end of the socket is dead.
func (c *connection) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished, c.noMore, c.pending = true, true, nil
	c.changed.Broadcast()
	_ = c.file.SetReadDeadline(time.Now().Add(drainTime))
	_ = c.file.SetWriteDeadline(time.Unix(1, 0))
}

// half notes the end of one direction. The second closes the socket.
func (c *connection) half() {
	c.mu.Lock()
	c.halves++
	both := c.halves == 2
	c.mu.Unlock()
	if both {
		_ = c.file.Close()
		c.s.forget(c.id)
	}
}

// abort refuses a connection that has no goroutines yet.
func (c *connection) abort() {
	c.lingerNot()
	_ = c.file.Close()
	c.s.forget(c.id)
}
