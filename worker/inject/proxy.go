package inject

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strings"
	"time"
)

// Bounds of a connection. A call's own end bounds all of them.
const (
	maxHeader   = 64 << 10
	headerTime  = 30 * time.Second // to read a request's header
	answerTime  = 5 * time.Minute  // from a request to the header of its answer
	idleTime    = time.Minute      // between two requests
	connectTime = 10 * time.Second // of the TLS handshake
)

// Header is one header that is added.
type Header struct {
	// Name is in any case. What the tool sends under it is dropped.
	Name string
	// Value is the whole value, with the secret in it. It has no control
	// characters.
	Value string
}

// Config says where requests go and what is added to them.
type Config struct {
	// Host is a host's exact name, Port the one that it serves TLS on.
	Host, Port string
	Headers    []Header
	// Dial makes the connection, with whatever checks there are of addresses.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Roots are the authorities that the host's certificate is checked by; nil
	// means the system's.
	Roots *x509.CertPool
	// Redact takes the secrets out of what the host answers.
	Redact Redactor
}

// Redactor takes secrets out of text and of streams.
type Redactor interface {
	String(s string) string
	Reader(r io.Reader) io.Reader
}

// Proxy serves the connections of one call to one host. It is safe for
// concurrent use.
type Proxy struct {
	cfg       Config
	conns     *conns
	transport *http.Transport
	reverse   *httputil.ReverseProxy
}

// New makes a proxy. Call Close when the call has ended.
func New(cfg Config) *Proxy {
	p := &Proxy{cfg: cfg, conns: &conns{dial: cfg.Dial}}
	p.transport = &http.Transport{
		DialContext:            p.conns.dialContext,
		TLSClientConfig:        &tls.Config{ServerName: cfg.Host, RootCAs: cfg.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectTime,
		ResponseHeaderTimeout:  answerTime,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true, // what is compressed cannot be searched
		IdleConnTimeout:        idleTime,
	}
	p.reverse = &httputil.ReverseProxy{
		Transport: p.transport, Rewrite: p.rewrite, ModifyResponse: p.clean, FlushInterval: -1,
		ErrorHandler: p.failed, ErrorLog: log.New(io.Discard, "", 0),
	}
	return p
}

// Close closes the connections to the host. No Serve may run any more.
func (p *Proxy) Close() {
	p.transport.CloseIdleConnections()
	p.conns.closeAll()
}

// Serve serves one connection of the tool until it ends or ctx does, and closes
// it.
func (p *Proxy) Serve(ctx context.Context, conn net.Conn) {
	over := make(chan struct{})
	// Not the request's own context: that ends when the client sends no more, as
	// some do at once that still want the answer.
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.handle(w, r.WithContext(ctx)) })
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		ErrorLog: log.New(io.Discard, "", 0), DisableGeneralOptionsHandler: true,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(over)
			}
		},
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = server.Serve(&single{conn: conn, addr: conn.LocalAddr(), over: over})
	<-over
}

// single is a listener with one connection.
type single struct {
	conn net.Conn // nil once it was given
	addr net.Addr
	over <-chan struct{}
}

// Accept implements [net.Listener].
func (s *single) Accept() (net.Conn, error) {
	if conn := s.conn; conn != nil {
		s.conn = nil
		return conn, nil
	}
	<-s.over
	return nil, net.ErrClosed
}

// Close implements [net.Listener].
func (s *single) Close() error { return nil }

// Addr implements [net.Listener].
func (s *single) Addr() net.Addr { return s.addr }

// handle judges a request and passes it on.
func (p *Proxy) handle(w http.ResponseWriter, r *http.Request) {
	switch {
	case !p.isHost(r.Host):
		refuse(w, http.StatusMisdirectedRequest, "this address is for "+p.cfg.Host+" alone")
	case r.Method == http.MethodConnect, r.URL.Path == "*":
		refuse(w, http.StatusMethodNotAllowed, "this method is for proxies")
	case r.Header.Get("Upgrade") != "":
		refuse(w, http.StatusNotImplemented, "connections cannot be upgraded here")
	default:
		p.reverse.ServeHTTP(w, r)
	}
}

// isHost tells whether a request is for the proxy's host. The tool speaks to
// port 80 of it, and may say so.
func (p *Proxy) isHost(host string) bool {
	return strings.EqualFold(strings.TrimSuffix(host, ":80"), p.cfg.Host)
}

func refuse(w http.ResponseWriter, status int, sentence string) {
	w.Header().Set("Connection", "close")
	http.Error(w, sentence, status)
}

// rewrite makes the request that goes out.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	out := r.Out
	out.URL.Scheme, out.URL.Host, out.URL.User = "https", net.JoinHostPort(p.cfg.Host, p.cfg.Port), nil
	out.Host = p.cfg.Host
	if p.cfg.Port != "443" {
		out.Host = out.URL.Host
	}
	out.Trailer = nil
	out.Header.Del("Trailer")
	for _, h := range p.cfg.Headers {
		drop(out.Header, h.Name)
		out.Header.Set(h.Name, h.Value)
	}
	// What is compressed cannot be searched, and of what comes in ranges of a
	// few bytes no secret would be known again.
	out.Header.Set("Accept-Encoding", "identity")
	out.Header.Del("Range")
}

// drop drops a header and what some servers take for it: they read an underscore
// for a hyphen.
func drop(h http.Header, name string) {
	like := func(s string) string {
		return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(s, "_", "-"))
	}
	for have := range h {
		if like(have) == like(name) {
			delete(h, have)
		}
	}
}

var errCompressed = errors.New("the host compresses its answer although it was asked not to")

// clean takes the secrets out of an answer.
func (p *Proxy) clean(r *http.Response) error {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return errCompressed
	}
	if r.StatusCode == http.StatusSwitchingProtocols {
		return errors.New("the host changes the protocol")
	}
	cleanHeader(r.Header, p.cfg.Redact)
	r.Status = p.cfg.Redact.String(r.Status)
	if r.Body == nil || r.Body == http.NoBody || r.Request.Method == http.MethodHead {
		return nil
	}
	// Its length is known when it is over; so are its trailers, which hosts hardly
	// have and are left out.
	r.Trailer = nil
	r.Header.Del("Content-Length")
	r.Header.Del("Trailer")
	r.ContentLength = -1
	r.Body = body{p.cfg.Redact.Reader(r.Body), r.Body}
	return nil
}

func cleanHeader(h http.Header, redact Redactor) {
	for name, values := range h {
		for i, v := range values {
			values[i] = redact.String(v)
		}
		if clean := redact.String(name); clean != name {
			delete(h, name)
		}
	}
}

// body is an answer's body without secrets.
type body struct {
	io.Reader
	io.Closer
}

// failed answers a request that could not be passed on. Why is for the tool's
// author, who chose the host.
func (p *Proxy) failed(w http.ResponseWriter, _ *http.Request, err error) {
	refuse(w, http.StatusBadGateway, p.cfg.Redact.String(fmt.Sprintf("%s cannot be reached: %v", p.cfg.Host, err)))
}
