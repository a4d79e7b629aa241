package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection to the world. It counts what goes through, and tells of
// itself when it is closed.
type conn struct {
	*net.TCPConn
	c              *Call
	to             target
	addr           netip.Addr
	began          time.Time
	sent, received atomic.Int64
	over           atomic.Bool // the call's bytes were spent
	stopped        chan struct{}
	once           sync.Once // guards stopped
	told           sync.Once
}

var errSpent = errors.New("egress: the call has moved all the bytes that it may")

// Read reads what the other side sends, not faster than the call may.
func (u *conn) Read(b []byte) (int, error) {
	n, err := u.TCPConn.Read(b)
	u.received.Add(int64(n))
	if spent := u.spend(n); spent != nil {
		return 0, spent
	}
	return n, err
}

// Write sends to the other side, not faster than the call may.
func (u *conn) Write(b []byte) (int, error) {
	if err := u.spend(len(b)); err != nil {
		return 0, err
	}
	n, err := u.TCPConn.Write(b)
	u.sent.Add(int64(n))
	return n, err
}

// ReadFrom and WriteTo would go round what counts.
func (u *conn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{u}, r)
}

// WriteTo is as ReadFrom.
func (u *conn) WriteTo(w io.Writer) (int64, error) {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{u}, buf[:])
}

const bufferSize = 32 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// spend takes n bytes of the call's, and waits when they are too fast.
func (u *conn) spend(n int) error {
	u.c.mu.Lock()
	u.c.left -= int64(n)
	spent := u.c.left < 0
	u.c.mu.Unlock()
	if spent {
		u.over.Store(true)
		_ = u.SetDeadline(time.Unix(1, 0))
		return errSpent
	}
	wait := u.c.speed.ReserveN(time.Now(), n).Delay() // n is at most a chunk, which the burst is larger than
	if wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-u.stopped:
		return net.ErrClosed
	}
}

// stop ends whatever waits for the connection.
func (u *conn) stop() {
	u.once.Do(func() { close(u.stopped) })
	_ = u.SetDeadline(time.Unix(1, 0))
}

// Close closes the connection and tells of it.
func (u *conn) Close() error {
	u.stop()
	err := u.TCPConn.Close()
	u.told.Do(func() {
		u.c.leave()
		e := entry{
			to: u.to.String(), addr: u.addr, connected: true,
			sent: u.sent.Load(), received: u.received.Load(), took: time.Since(u.began),
		}
		if u.over.Load() {
			e.reason, e.detail = reasonLimit, errSpent.Error()
		}
		u.c.tell(e)
	})
	return err
}

// duplex is a connection whose halves end one by one.
type duplex interface {
	net.Conn
	CloseWrite() error
	Reset() error
}

// carry carries bytes both ways until both have ended or ctx has, and closes both
// connections. What breaks on one side is broken on the other.
func carry(ctx context.Context, tool duplex, up *conn) {
	defer func() { _ = up.Close() }()
	defer func() { _ = tool.Close() }()
	broken := func() {
		_ = tool.Reset()
		_ = up.SetLinger(0)
		up.stop()
	}
	defer context.AfterFunc(ctx, up.stop)()
	var back sync.WaitGroup
	back.Go(func() {
		if _, err := up.WriteTo(tool); err != nil {
			broken()
			return
		}
		_ = tool.CloseWrite()
	})
	if _, err := io.Copy(struct{ io.Writer }{up}, tool); err != nil {
		broken()
	} else {
		_ = up.CloseWrite()
	}
	back.Wait()
}
