package egress

import (
	"net"
	"net/netip"
)

// special are the networks of IPv4 that are not the internet's, from IANA's
// registry of special-purpose addresses: those that are not globally reachable,
// and those that lead elsewhere.
var special = []struct {
	prefix netip.Prefix
	class  string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by a carrier"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},

	{netip.MustParsePrefix("2001::/32"), "a Teredo tunnel"},
	{netip.MustParsePrefix("2001::/23"), "reserved"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 tunnel"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
	// Of IPv6 nothing but 2000::/3 is given out. These are named for people.
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("::/96"), "compatible with IPv4"},
	{netip.MustParsePrefix("64:ff9b::/96"), "NAT64"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "NAT64"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "site-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

var given = netip.MustParsePrefix("2000::/3")

// metadata are the addresses at which clouds give a machine's credentials to
// whoever asks. An operator who opens a network around one has not meant it.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("169.254.170.2"), netip.MustParseAddr("169.254.170.23"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("192.0.0.192"), netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"), netip.MustParseAddr("fd20:ce::254"),
}

// judge says why no tool may connect to addr, or "" for an address of the
// internet and for one in a network that the operator has opened. An address of
// IPv4 in IPv6's clothes is judged as what it is.
func (p *Policy) judge(addr netip.Addr) string {
	if addr.Zone() != "" {
		return "link-local"
	}
	addr = addr.Unmap()
	for _, m := range metadata {
		if addr == m {
			if p.opens(addr, addr.BitLen()) {
				return ""
			}
			return "a cloud's metadata"
		}
	}
	if p.opens(addr, 0) {
		return ""
	}
	for _, s := range special {
		if s.prefix.Contains(addr) {
			return s.class
		}
	}
	if addr.Is6() && !given.Contains(addr) {
		return "reserved"
	}
	if p.own(addr) {
		return "this machine's own"
	}
	return ""
}

// opens tells whether the operator opened a network with addr in it, of at least
// so many bits.
func (p *Policy) opens(addr netip.Addr, bits int) bool {
	for _, prefix := range p.AllowPrivate {
		if prefix.Bits() >= bits && prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// ownAddresses are the addresses of this machine: what listens there for the
// world, the queue among it, is not a tool's to reach from within.
func ownAddresses(addr netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(ip.IP); ok && own.Unmap() == addr {
				return true
			}
		}
	}
	return false
}
