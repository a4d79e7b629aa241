package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// Bounds of what a client says to the proxy.
const (
	greetTime = 30 * time.Second
	maxHeader = 64 << 10
)

// serveProxy speaks to a client of the proxy. SOCKS begins with its version,
// which begins no request of HTTP.
func (c *Call) serveProxy(ctx context.Context, conn *sandbox.Stream) {
	in := &buffered{Stream: conn, r: bufio.NewReader(conn)}
	_ = conn.SetReadDeadline(time.Now().Add(greetTime))
	first, err := in.r.Peek(1)
	if err != nil {
		return
	}
	if first[0] == socksVersion {
		c.serveSOCKS(ctx, in)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	c.serveHTTP(ctx, in)
}

// buffered is a stream of which some was read ahead.
type buffered struct {
	*sandbox.Stream
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// WriteTo carries what was read ahead, then the rest.
func (b *buffered) WriteTo(w io.Writer) (int64, error) {
	ahead, err := b.r.Peek(b.r.Buffered())
	if err != nil {
		return 0, err
	}
	n, err := w.Write(ahead)
	if err != nil {
		return int64(n), err
	}
	rest, err := b.Stream.WriteTo(w)
	return int64(n) + rest, err
}

// serveHTTP serves one connection with net/http, which bounds and checks what is
// read.
func (c *Call) serveHTTP(ctx context.Context, conn net.Conn) {
	l := &one{conn: conn, addr: conn.LocalAddr(), over: make(chan struct{})}
	s := &http.Server{
		Handler: c.handler(l.end), ReadHeaderTimeout: greetTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				l.end()
			}
		},
	}
	// A tunnel is no longer the server's, and whoever carries it ends the listener
	// behind it. So Serve returns after all else.
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	_ = s.Serve(l)
}

// one is a listener of one connection.
type one struct {
	conn net.Conn
	addr net.Addr
	over chan struct{} // closed when the connection is
	once sync.Once
}

func (l *one) end() { l.once.Do(func() { close(l.over) }) }

func (l *one) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.over
	return nil, net.ErrClosed
}

func (l *one) Close() error   { return nil }
func (l *one) Addr() net.Addr { return l.addr }

// handler answers a proxy's requests, and calls end behind a tunnel.
func (c *Call) handler(end func()) http.Handler {
	forward := &httputil.ReverseProxy{
		// The target decides what the Host header says, not the client.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL, r.Out.Host = r.In.URL, r.In.URL.Host
		},
		Transport:    c.forward,
		ErrorLog:     log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			c.connectHTTP(w, r, end)
		case r.URL.Scheme == "http" && r.URL.Host != "":
			forward.ServeHTTP(w, r)
		default:
			http.Error(w, "This is a proxy: ask it for a whole http:// address, or CONNECT.", http.StatusBadRequest)
		}
	})
}

// refuse says why a connection was not made.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	var d *Denial
	if errors.As(err, &d) && d.Reason != reasonFailed && d.Reason != reasonName {
		http.Error(w, "The fleet refuses this connection: "+d.Detail+".", http.StatusForbidden)
		return
	}
	http.Error(w, "The connection could not be made: "+err.Error()+".", http.StatusBadGateway)
}

// connectHTTP makes a tunnel, carries it, and calls end.
func (c *Call) connectHTTP(w http.ResponseWriter, r *http.Request, end func()) {
	up, err := c.Dial(r.Context(), "tcp", r.Host)
	if err != nil {
		refuse(w, err)
		return
	}
	raw, ahead, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = up.Close()
		return
	}
	defer end()
	_ = raw.SetDeadline(time.Time{})
	tool := raw.(*buffered) //nolint:forcetypeassert // what serveHTTP was given
	if n := ahead.Reader.Buffered(); n > 0 {
		early, _ := ahead.Peek(n)
		tool = &buffered{Stream: tool.Stream, r: bufio.NewReader(io.MultiReader(bytes.NewReader(early), tool.r))}
		_, _ = tool.r.Peek(n)
	}
	if _, err := io.WriteString(tool, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = up.Close()
		return
	}
	carry(r.Context(), tool, up.(*conn)) //nolint:forcetypeassert // what Dial makes
}

// splitTarget reads "host:port".
func splitTarget(address string) (target, error) {
	host, digits, err := net.SplitHostPort(address)
	if err != nil {
		return target{}, deny(reasonNotAllowed, "%.100q is no host and port", address)
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || port == 0 {
		return target{}, deny(reasonNotAllowed, "%.100q has no port", address)
	}
	return parseTarget(host, uint16(port))
}
