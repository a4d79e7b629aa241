package egress

import (
	"net/netip"
	"testing"
)

// What every address is. The first and the last of each network stand for it,
// and their neighbours for the world.
func TestJudge(t *testing.T) {
	p := &Policy{ownAddr: func(a netip.Addr) bool { return a == netip.MustParseAddr("93.184.216.1") }}
	for address, want := range map[string]string{
		"0.0.0.0": "unspecified", "0.255.255.255": "unspecified", "1.0.0.0": "", "1.1.1.1": "", "8.8.8.8": "",
		"9.255.255.255": "", "10.0.0.0": "private", "10.255.255.255": "private", "11.0.0.0": "",
		"100.63.255.255": "", "100.64.0.0": "shared by a carrier", "100.127.255.255": "shared by a carrier", "100.128.0.0": "",
		"100.100.100.200": "a cloud's metadata", "126.255.255.255": "", "127.0.0.1": "loopback", "127.255.255.255": "loopback", "128.0.0.0": "",
		"168.63.129.16": "a cloud's metadata", "169.253.255.255": "", "169.254.0.0": "link-local", "169.254.169.254": "a cloud's metadata",
		"169.254.170.2": "a cloud's metadata", "169.254.255.255": "link-local", "169.255.0.0": "",
		"172.15.255.255": "", "172.16.0.0": "private", "172.31.255.255": "private", "172.32.0.0": "",
		"192.0.0.192": "a cloud's metadata", "192.0.0.1": "reserved", "192.0.1.0": "", "192.0.2.255": "for documentation", "192.88.99.1": "a 6to4 relay",
		"192.167.255.255": "", "192.168.0.0": "private", "192.168.255.255": "private", "192.169.0.0": "",
		"198.17.255.255": "", "198.18.0.0": "for benchmarks", "198.19.255.255": "for benchmarks", "198.20.0.0": "",
		"198.51.100.7": "for documentation", "203.0.113.7": "for documentation", "223.255.255.255": "",
		"224.0.0.1": "multicast", "239.255.255.255": "multicast", "240.0.0.0": "reserved", "255.255.255.255": "reserved",
		"93.184.216.1": "this machine's own",

		"::": "unspecified", "::1": "loopback", "::7f00:1": "compatible with IPv4", "::a9fe:a9fe": "compatible with IPv4",
		"::ffff:127.0.0.1": "loopback", "::ffff:169.254.169.254": "a cloud's metadata", "::ffff:10.0.0.1": "private", "::ffff:8.8.8.8": "",
		"64:ff9b::7f00:1": "NAT64", "64:ff9b::808:808": "NAT64", "64:ff9b:1::1": "NAT64", "100::1": "reserved",
		"2001::1": "a Teredo tunnel", "2001:1ff:ffff::1": "reserved", "2001:200::1": "", "2001:db8::1": "for documentation",
		"2001:4860:4860::8888": "", "2002:7f00:1::": "a 6to4 tunnel", "2606:4700::1111": "", "3fff::1": "for documentation", "3fff:1000::": "",
		"4000::1": "reserved", "5f00::1": "reserved", "fc00::1": "private", "fd00:ec2::254": "a cloud's metadata", "fd00::1": "private",
		"fe80::1": "link-local", "fe80::1%eth0": "link-local", "2606:4700::1%eth0": "link-local", "fec0::1": "site-local", "ff02::1": "multicast",
	} {
		if got := p.judge(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %q, want %q", address, got, want)
		}
	}
}

// An operator opens what was named and no more; metadata only by its address.
func TestAllowPrivate(t *testing.T) {
	p := &Policy{AllowPrivate: []netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("0.0.0.0/0"),
	}}
	for address, open := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "169.254.1.1": true, "169.254.169.254": false, "fd00::1": true, "fd00:ec2::254": false, "100.100.100.200": false,
	} {
		if got := p.judge(netip.MustParseAddr(address)); (got == "") != open {
			t.Errorf("%s is %q", address, got)
		}
	}
	p.AllowPrivate = []netip.Prefix{netip.MustParsePrefix("169.254.169.254/32")}
	if got := p.judge(netip.MustParseAddr("169.254.169.254")); got != "" {
		t.Errorf("what the operator named is %q", got)
	}
	if p.judge(netip.MustParseAddr("169.254.169.253")) == "" {
		t.Error("its neighbour is open")
	}
}
