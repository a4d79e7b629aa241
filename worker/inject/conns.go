package inject

import (
	"context"
	"net"
	"sync"
)

// conns are the connections to the host. A transport closes those that it does
// not use in its own time, and who counts a call's connections wants them closed
// at its end.
type conns struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex // guards the fields below
	open   map[*tracked]struct{}
	closed bool
}

// tracked is one of them.
type tracked struct {
	net.Conn

	of *conns
}

func (c *conns) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t := &tracked{conn, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // a transport dials ahead of its requests
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	if c.open == nil {
		c.open = map[*tracked]struct{}{}
	}
	c.open[t] = struct{}{}
	return t, nil
}

// Close implements [net.Conn].
func (t *tracked) Close() error {
	t.of.mu.Lock()
	delete(t.of.open, t)
	t.of.mu.Unlock()
	return t.Conn.Close()
}

// closeAll closes those that are open.
func (c *conns) closeAll() {
	c.mu.Lock()
	all := c.open
	c.open, c.closed = nil, true
	c.mu.Unlock()
	for t := range all {
		_ = t.Conn.Close()
	}
}
