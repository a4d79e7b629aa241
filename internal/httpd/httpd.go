// Package httpd ends HTTP servers on time.
//
// http.Server.Shutdown waits up to five seconds for a connection on which no
// request has come yet, since one may be on its way. Clients open such
// connections as a matter of course: Go's own dials a second one while it
// waits for the first and then leaves it unused, and browsers do the like. A
// server that has said that it is not ready owes them nothing, and a drain of
// a second that takes five is a drain that the init system ends with SIGKILL.
package httpd

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Quick makes s end without waiting for connections that were never used. It
// sets s.ConnState and must be called before s serves. The function returned
// takes the place of s.Shutdown and has its meaning in all else: a request
// that has begun may end, until ctx is done.
func Quick(s *http.Server) (shutdown func(ctx context.Context) error) {
	u := &unused{conns: make(map[net.Conn]struct{})}
	s.ConnState = u.state
	return func(ctx context.Context) error {
		u.end()
		return s.Shutdown(ctx)
	}
}

// unused holds the connections that brought no byte yet. It is as bounded as
// the server's own list of connections.
type unused struct {
	mu    sync.Mutex
	ended bool
	conns map[net.Conn]struct{}
}

// state is called by the server at every change of a connection.
func (u *unused) state(c net.Conn, s http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case s != http.StateNew:
		delete(u.conns, c)
	case u.ended:
		_ = c.Close() // accepted while the listener was being closed
	default:
		u.conns[c] = struct{}{}
	}
}

func (u *unused) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	for c := range u.conns {
		_ = c.Close()
	}
}
