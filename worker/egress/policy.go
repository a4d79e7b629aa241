package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
)

// Resolver resolves names; [net.Resolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Policy is what holds for all calls of a worker. Its fields are set before the
// first call and not changed after it.
type Policy struct {
	// AllowPrivate are networks that tools may reach although they are not the
	// internet's. A cloud's metadata address is opened only by a network of that
	// one address.
	AllowPrivate []netip.Prefix
	// Limits are those of every call.
	Limits Limits
	// Resolver is the worker's own, with /etc/hosts, when nil.
	Resolver Resolver

	// control and own are for tests: who opens the socket, and which addresses
	// are this machine's.
	control func(network, address string, c syscall.RawConn) error
	ownAddr func(netip.Addr) bool
}

// Limits bound one call. Zero is the default, never unlimited.
type Limits struct {
	// AtOnce and Total count connections: 64 and 1,024 by default.
	AtOnce, Total int
	// Bytes is over all connections and both directions; 1 GiB by default.
	Bytes int64
	// Rate is in bytes per second, over the same; 64 MiB by default.
	Rate int64
}

// WithDefaults fills in what l leaves open.
func (l Limits) WithDefaults() Limits {
	if l.AtOnce <= 0 {
		l.AtOnce = 64
	}
	if l.Total <= 0 {
		l.Total = 1024
	}
	if l.Bytes <= 0 {
		l.Bytes = 1 << 30
	}
	if l.Rate <= 0 {
		l.Rate = 64 << 20
	}
	return l
}

// Bounds of making one connection.
const (
	lookupTime   = 5 * time.Second
	dialTime     = 10 * time.Second // of all addresses of a name together
	maxAddresses = 16               // of one name
)

// The reasons of a refusal: a closed set, which metrics count by.
const (
	reasonNotAllowed = "not_allowed" // by the tool's allow list
	reasonAddress    = "address"     // its address is nobody's to reach
	reasonLimit      = "limit"       // of the call
	reasonName       = "name"        // the name does not exist, or could not be resolved
	reasonFailed     = "failed"      // the other side refused, or did not answer
)

// Denial says why a connection was not made.
type Denial struct {
	// Reason is one of a closed set, Detail a sentence for people.
	Reason, Detail string
}

func (d *Denial) Error() string { return "egress: " + d.Detail }

func deny(reason, format string, args ...any) error {
	return &Denial{reason, fmt.Sprintf(format, args...)}
}

// target is where a tool wants to go: a name, or an address.
type target struct {
	name string
	addr netip.Addr
	port uint16
}

func (t target) String() string {
	host := t.name
	if t.name == "" {
		host = t.addr.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(t.port)))
}

// parseTarget reads what a client asks a proxy for. Whatever looks like an
// address and is not written as one is refused: decimal, octal and hexadecimal
// forms are how filters are walked around.
func parseTarget(host string, port uint16) (target, error) {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if addr, err := netip.ParseAddr(host); err == nil {
		return target{addr: addr.Unmap(), port: port}, nil
	}
	name, err := catalog.NormalName(host)
	if err != nil {
		return target{}, deny(reasonNotAllowed, "%v", err)
	}
	return target{name: name, port: port}, nil
}

// allows tells whether one of the entries is t's.
func allows(entries []catalog.Allowed, t target) bool {
	return slices.ContainsFunc(entries, func(a catalog.Allowed) bool {
		switch {
		case a.Port != t.port:
			return false
		case t.name == "":
			return a.Prefix.IsValid() && a.Prefix.Contains(t.addr)
		}
		return a.Name == t.name || a.Suffix != "" && strings.HasSuffix(t.name, a.Suffix) && len(t.name) > len(a.Suffix)
	})
}

// addresses are where t may be connected to. All of them have to be good: a name
// that also leads where nobody may go is a mistake or an attack, and which of its
// addresses is tried first is not this side's to rely on.
func (p *Policy) addresses(ctx context.Context, t target) ([]netip.Addr, error) {
	all := []netip.Addr{t.addr}
	if t.name != "" {
		var err error
		if all, err = p.lookUp(ctx, t.name); err != nil {
			return nil, err
		}
	}
	for _, addr := range all {
		if class := p.judge(addr); class != "" {
			return nil, deny(reasonAddress, "%s is at %s, which is %s", t, addr, class)
		}
	}
	return all, nil
}

func (p *Policy) lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	// libc's resolver would not find a name with a dot at its end in /etc/hosts.
	var r Resolver = &net.Resolver{PreferGo: true, Dial: net.DefaultResolver.Dial}
	if p.Resolver != nil {
		r = p.Resolver
	}
	// With its dot the name is whole: no search list makes another of it.
	all, err := r.LookupNetIP(ctx, "ip", name+".")
	if err != nil || len(all) == 0 {
		return nil, deny(reasonName, "%s could not be resolved: %v", name, err)
	}
	for i := range all {
		all[i] = all[i].Unmap()
	}
	return all[:min(len(all), maxAddresses)], nil
}

// dial connects to the first of the addresses that answers.
func (p *Policy) dial(ctx context.Context, t target, addresses []netip.Addr) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var errs []error
	for i, addr := range addresses {
		d := net.Dialer{Control: p.check, Timeout: dialTime / time.Duration(len(addresses)-i)}
		conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, t.port).String())
		if err == nil {
			return conn.(*net.TCPConn), nil //nolint:forcetypeassert // what "tcp" makes
		}
		errs = append(errs, err)
	}
	return nil, deny(reasonFailed, "%s does not answer: %v", t, errors.Join(errs...))
}

// check sees each address once more, as the kernel is about to connect to it.
func (p *Policy) check(network, address string, c syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if class := p.judge(at.Addr()); class != "" {
		return deny(reasonAddress, "%s is %s", at.Addr(), class)
	}
	if p.control != nil {
		return p.control(network, address, c)
	}
	return nil
}

func (p *Policy) own(addr netip.Addr) bool {
	if p.ownAddr != nil {
		return p.ownAddr(addr)
	}
	return ownAddresses(addr)
}
