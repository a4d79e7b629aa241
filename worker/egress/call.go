package egress

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// Where a tool finds things. The proxy and the names have addresses that nobody
// else uses, so that a tool may listen on 127.0.0.1 as it likes.
const (
	nameServer   = "127.0.0.1:53"
	proxyAddress = "127.84.0.1:3128"
)

// nameAddress is the loopback address of the i-th name.
func nameAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 84, 1 + byte(i/250), 1 + byte(i%250)})
}

// DialFunc makes a connection of a call, as far as its policy and its limits
// allow. network is "tcp", address a host and a port. Its error wraps a [*Denial]
// when there is none.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Service answers the connections to one name and port itself, in place of
// carrying them on: that the tool speaks plain HTTP where the host wants TLS and a
// secret, for instance.
type Service struct {
	Name string
	Port uint16
	// Serve serves one connection until it is over, and closes it.
	Serve func(ctx context.Context, conn net.Conn)
}

// Options of a call.
type Options struct {
	Allowed  []catalog.Allowed
	Services []Service
	// Logger takes a line for each connection; it carries who the call is.
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *metrics.Metrics
}

// Call is the network of one call. It is safe for concurrent use.
type Call struct {
	policy    *Policy
	opts      Options
	limits    Limits
	endpoints []endpoint
	names     map[string]netip.Addr
	forward   *http.Transport
	speed     *rate.Limiter
	fewer     chan struct{} // holds a token when a connection has ended

	mu     sync.Mutex // guards the fields below
	open   int
	total  int
	left   int64
	report report
}

// endpoint is what listens on one address.
type endpoint struct {
	listen wire.Listener
	serve  func(ctx context.Context, conn *sandbox.Stream)
}

// Call begins the network of a call. Close it after the call's run.
func (p *Policy) Call(opts Options) *Call {
	limits := p.Limits.WithDefaults()
	c := &Call{
		policy: p, opts: opts, limits: limits, left: limits.Bytes, names: map[string]netip.Addr{}, fewer: make(chan struct{}, 1),
		speed: rate.NewLimiter(rate.Limit(limits.Rate), int(max(limits.Rate, wire.StreamWindow))),
	}
	c.forward = &http.Transport{DialContext: c.Dial, DisableCompression: true, IdleConnTimeout: time.Minute}
	c.listen(wire.Listener{Network: "udp", Address: nameServer}, c.serveName)
	if c.needsProxy() {
		c.listen(wire.Listener{Network: "tcp", Address: proxyAddress}, c.serveProxy)
	}
	for _, s := range opts.Services {
		c.listenName(s.Name, s.Port, func(ctx context.Context, conn *sandbox.Stream) { s.Serve(ctx, conn) })
	}
	for _, a := range opts.Allowed {
		served := slices.ContainsFunc(opts.Services, func(s Service) bool { return s.Name == a.Name && s.Port == a.Port })
		if a.Name == "" || served {
			continue
		}
		to := target{name: a.Name, port: a.Port}
		c.listenName(a.Name, a.Port, func(ctx context.Context, conn *sandbox.Stream) { c.serveTarget(ctx, conn, to) })
	}
	return c
}

func (c *Call) listen(l wire.Listener, serve func(context.Context, *sandbox.Stream)) {
	c.endpoints = append(c.endpoints, endpoint{l, serve})
}

func (c *Call) listenName(name string, port uint16, serve func(context.Context, *sandbox.Stream)) {
	addr, known := c.names[name]
	if !known {
		addr = nameAddress(len(c.names))
		c.names[name] = addr
	}
	c.listen(wire.Listener{Network: "tcp", Address: netip.AddrPortFrom(addr, port).String()}, serve)
}

// needsProxy tells whether something may be reached that has no listener.
func (c *Call) needsProxy() bool {
	return slices.ContainsFunc(c.opts.Allowed, func(a catalog.Allowed) bool { return a.Name == "" })
}

// Listeners are for the call's [sandbox.Process].
func (c *Call) Listeners() sandbox.Listeners {
	l := sandbox.Listeners{Serve: func(ctx context.Context, i int, conn *sandbox.Stream) { c.endpoints[i].serve(ctx, conn) }}
	for _, e := range c.endpoints {
		l.Addresses = append(l.Addresses, e.listen)
	}
	return l
}

// Env is what the tool's environment says of the proxy, in the two spellings that
// programs read; nothing when there is none. ALL_PROXY names HTTP's and not
// SOCKS', since some programs that know no SOCKS refuse to start when they see it.
func (c *Call) Env() []string {
	if !c.needsProxy() {
		return nil
	}
	direct := []string{"localhost", "127.0.0.1", "::1"}
	for name := range c.names {
		// To most programs the name stands for all names below it as well.
		if !slices.ContainsFunc(c.opts.Allowed, func(a catalog.Allowed) bool { return strings.HasSuffix(a.Suffix, "."+name) }) {
			direct = append(direct, name)
		}
	}
	slices.Sort(direct[3:])
	env := []string{"NODE_USE_ENV_PROXY=1"}
	for name, value := range map[string]string{
		"http_proxy": "http://" + proxyAddress, "https_proxy": "http://" + proxyAddress,
		"all_proxy": "http://" + proxyAddress, "no_proxy": strings.Join(direct, ","),
	} {
		env = append(env, name+"="+value, strings.ToUpper(name)+"="+value)
	}
	slices.Sort(env)
	return env
}

// serveTarget carries a connection to a name on.
func (c *Call) serveTarget(ctx context.Context, conn *sandbox.Stream, to target) {
	up, err := c.connect(ctx, to)
	if err != nil {
		_ = conn.Reset()
		return
	}
	carry(ctx, conn, up)
}

// Dial is a [DialFunc].
func (c *Call) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	to, err := splitTarget(address)
	if err != nil {
		return nil, err
	}
	return c.connect(ctx, to)
}

// connect makes a connection to a target, or refuses it; either way it is told.
func (c *Call) connect(ctx context.Context, to target) (*conn, error) {
	began := time.Now()
	up, addr, err := c.tryConnect(ctx, to)
	if err != nil {
		var d *Denial
		if !errors.As(err, &d) {
			d = &Denial{reasonFailed, err.Error()}
		}
		c.tell(entry{to: to.String(), addr: addr, reason: d.Reason, detail: d.Detail, took: time.Since(began)})
		return nil, d
	}
	return &conn{TCPConn: up, c: c, to: to, addr: addr, began: began, stopped: make(chan struct{})}, nil
}

func (c *Call) tryConnect(ctx context.Context, to target) (*net.TCPConn, netip.Addr, error) {
	if !allows(c.opts.Allowed, to) {
		return nil, netip.Addr{}, deny(reasonNotAllowed, "%s is not in the tool's network.allow", to)
	}
	if err := c.enter(); err != nil {
		return nil, netip.Addr{}, err
	}
	addresses, err := c.policy.addresses(ctx, to)
	if err != nil {
		c.leave()
		return nil, netip.Addr{}, err
	}
	up, err := c.policy.dial(ctx, to, addresses)
	if err != nil {
		c.leave()
		return nil, addresses[0], err
	}
	at, _ := netip.ParseAddrPort(up.RemoteAddr().String())
	return up, at.Addr(), nil
}

// enter counts a connection before it is made.
func (c *Call) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open >= c.limits.AtOnce:
		return deny(reasonLimit, "the call has its %d connections at once", c.limits.AtOnce)
	case c.total >= c.limits.Total:
		return deny(reasonLimit, "the call has had its %d connections", c.limits.Total)
	case c.left <= 0:
		return deny(reasonLimit, "the call has moved its %d bytes", c.limits.Bytes)
	}
	c.open++
	c.total++
	return nil
}

func (c *Call) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	select {
	case c.fewer <- struct{}{}:
	default:
	}
}

// closeTime bounds how long Close waits. Nothing is left to wait for but
// connections of the proxy that are being closed.
const closeTime = time.Second

// Close ends what the call kept for another request, so that the report is whole.
// It comes after the run.
func (c *Call) Close() {
	c.forward.CloseIdleConnections()
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	for {
		c.mu.Lock()
		open := c.open
		c.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-c.fewer:
		case <-timer.C:
			return
		}
	}
}
