package main

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// direct are ways round everything: addresses, without asking anybody.
var direct = []attempt{
	{name: "direct-internet", opens: "the internet is reached", try: tcp("93.184.216.34:443")},
	{name: "direct-allowed-address", opens: "there is a route", try: tcp("198.18.0.1:22")},
	{name: "direct-metadata", opens: "the cloud's metadata is reached", try: tcp("169.254.169.254:80")},
	{name: "direct-metadata-ipv6", opens: "the cloud's metadata is reached", try: tcp("[fd00:ec2::254]:80")},
	{name: "direct-metadata-carrier", opens: "the cloud's metadata is reached", try: tcp("100.100.100.200:80")},
	{name: "direct-metadata-mapped", opens: "the cloud's metadata is reached", try: tcp("[::ffff:169.254.169.254]:80")},
	{name: "direct-private", opens: "a private network is reached", try: tcp("10.9.9.9:443")},
	{name: "direct-host-loopback", opens: "the host's loopback is reached", try: tcp("127.0.0.1:4222")},
	{name: "direct-host-loopback-ipv6", opens: "the host's loopback is reached", try: tcp("[::1]:4222")},
	{name: "direct-host-loopback-mapped", opens: "the host's loopback is reached", try: tcp("[::ffff:127.0.0.1]:4222")},
	{name: "direct-unspecified", opens: "the host's loopback is reached", try: tcp("0.0.0.0:4222")},
	{name: "direct-other-port", opens: "another port of an allowed name is reached", try: tcp("allowed.test:22")},
	{name: "direct-udp", opens: "a datagram leaves", try: udp("93.184.216.34:443")},
	{name: "direct-quic", opens: "a datagram leaves by an allowed name", try: udp("allowed.test:443")},
	{name: "direct-multicast", opens: "a datagram leaves", try: udp("224.0.0.251:5353")},
	{name: "direct-broadcast", opens: "a datagram leaves", try: udp("255.255.255.255:53")},
	{name: "dns-over-udp", opens: "a question leaves", try: udp("8.8.8.8:53")},
	{name: "dns-over-tcp", opens: "a question leaves", try: tcp("8.8.8.8:53")},
	{name: "dns-over-https", opens: "a question leaves", try: connect("8.8.8.8:443")},
	{name: "dns-over-https-by-name", opens: "a question leaves", try: connect("dns.google:443")},
	{name: "dns-over-tls", opens: "a question leaves", try: tcp("8.8.8.8:853")},
}

// names are questions to the sandbox's own name server, and names whose addresses
// are not what they should be.
var names = []attempt{
	{name: "dns-unlisted-name", opens: "a name that is not listed has an address", try: asks("leak.name.test", 1)},
	{name: "dns-text", opens: "a question leaves", try: asks("leak.text.test", 16)},
	{name: "dns-below-a-name", opens: "a question leaves", try: asks("leak.allowed.test", 1)},
	{name: "dns-metadata-name", opens: "the cloud's metadata has an address", try: asks("metadata.google.internal", 1)},
	{name: "name-at-private", opens: "a private network is reached", try: tcp("private.test:443")},
	{name: "name-at-metadata", opens: "the cloud's metadata is reached", try: tcp("metadata.test:80")},
	{name: "name-at-loopback", opens: "the host's loopback is reached", try: tcp("loopback.test:4222")},
	{name: "name-at-mapped", opens: "the cloud's metadata is reached", try: tcp("mapped.test:80")},
	{name: "name-at-ipv6-metadata", opens: "the cloud's metadata is reached", try: tcp("metadata6.test:80")},
	{name: "name-at-nat64", opens: "an address inside another is reached", try: tcp("nat64.test:80")},
	{name: "name-at-6to4", opens: "an address inside another is reached", try: tcp("sixtofour.test:80")},
	{name: "name-at-own-address", opens: "the host is reached by its own address", try: tcp("own.test:4222")},
	{name: "name-at-good-and-bad", opens: "a private network is reached", try: tcp("mixed.test:443")},
	{name: "name-rebound", opens: "a name led elsewhere the second time", try: rebind},
	{name: "sni-of-another-host", opens: "the name in TLS decides", try: hello("metadata.google.internal")},
	{name: "redirect-to-metadata", opens: "a redirect is followed past the policy", try: follow("")},
	{name: "redirect-through-proxy", opens: "a redirect is followed past the policy", try: follow(proxy)},
	{name: "more-connections", opens: "a limit is none", try: crowd},
}

func rebind(b bait) (bool, string) {
	for range 5 {
		if open, why := tcp("rebind.test:443")(b); open {
			return true, why
		}
	}
	return connect("rebind.test:443")(b)
}

// proxied ask the proxy for what it must not give.
var proxied = []attempt{
	{name: "connect-internet", opens: "the internet is reached", try: connect("93.184.216.34:443")},
	{name: "connect-metadata", opens: "the cloud's metadata is reached", try: connect("169.254.169.254:80")},
	{name: "connect-metadata-ipv6", opens: "the cloud's metadata is reached", try: connect("[fd00:ec2::254]:80")},
	{name: "connect-mapped", opens: "the cloud's metadata is reached", try: connect("[::ffff:169.254.169.254]:80")},
	{name: "connect-mapped-hex", opens: "the cloud's metadata is reached", try: connect("[::ffff:a9fe:a9fe]:80")},
	{name: "connect-compatible", opens: "the cloud's metadata is reached", try: connect("[::a9fe:a9fe]:80")},
	{name: "connect-decimal", opens: "the cloud's metadata is reached", try: connect("2852039166:80")},
	{name: "connect-octal", opens: "the cloud's metadata is reached", try: connect("0251.0376.0251.0376:80")},
	{name: "connect-hexadecimal", opens: "the cloud's metadata is reached", try: connect("0xa9fea9fe:80")},
	{name: "connect-short", opens: "the host's loopback is reached", try: connect("127.1:4222")},
	{name: "connect-loopback", opens: "the host's queue is reached", try: connect("127.0.0.1:4222")},
	{name: "connect-localhost", opens: "the host's queue is reached", try: connect("localhost:4222")},
	{name: "connect-zone", opens: "a link of the host is reached", try: connect("[fe80::1%25lo]:80")},
	{name: "connect-forbidden-port", opens: "another port is reached", try: connect("any.wild.test:22")},
	{name: "connect-forbidden-port-of-network", opens: "another port is reached", try: connect("198.18.0.1:22")},
	{name: "connect-beside-the-wildcard", opens: "a name that only looks like it is reached", try: connect("notwild.test:443")},
	{name: "connect-wildcard-itself", opens: "the name above is reached", try: connect("wild.test:443")},
	{name: "connect-wildcard-at-private", opens: "a private network is reached", try: connect("private.wild.test:443")},
	{name: "connect-userinfo", opens: "what stands before an @ decides", try: connect("any.wild.test:443@169.254.169.254:80")},
	{name: "connect-nul", opens: "a NUL ends a name for one and not for the other", try: connect("169.254.169.254\x00.wild.test:80")},
	{name: "get-metadata", opens: "the cloud's metadata is reached", try: say("GET http://169.254.169.254/latest HTTP/1.1", "Host: 169.254.169.254", "Connection: close")},
	{name: "get-host-header", opens: "the Host header decides", try: say("GET http://allowed.test/ HTTP/1.1", "Host: 169.254.169.254", "Connection: close")},
	{name: "get-pipelined", opens: "a second request is not judged", try: say("GET http://allowed.test/ HTTP/1.1", "Host: allowed.test", "", "GET http://169.254.169.254/ HTTP/1.1", "Host: allowed.test", "Connection: close")},
	{name: "get-smuggled", opens: "a request inside another is not judged", try: say("POST http://allowed.test/ HTTP/1.1", "Host: allowed.test", "Content-Length: 4", "Transfer-Encoding: chunked", "", "0", "", "CONNECT 169.254.169.254:80 HTTP/1.1", "Host: x")},
}

// socks ask the same of SOCKS.
var socks = []attempt{
	{name: "socks-metadata", opens: "the cloud's metadata is reached", try: socksAt("169.254.169.254", 80)},
	{name: "socks-mapped", opens: "the cloud's metadata is reached", try: socksAt("::ffff:169.254.169.254", 80)},
	{name: "socks-loopback", opens: "the host's queue is reached", try: socksAt("127.0.0.1", 4222)},
	{name: "socks-private", opens: "a private network is reached", try: socksAt("10.9.9.9", 443)},
	{name: "socks-decimal", opens: "the cloud's metadata is reached", try: socksTo(1, "2852039166", 80)},
	{name: "socks-unlisted-name", opens: "a name that is not listed is reached", try: socksTo(1, "leak.socks.test", 443)},
	{name: "socks-name-at-private", opens: "a private network is reached", try: socksTo(1, "private.wild.test", 443)},
	{name: "socks-forbidden-port", opens: "another port is reached", try: socksTo(1, "any.wild.test", 22)},
	{name: "socks-bind", opens: "the worker listens for a tool", try: socksTo(2, "any.wild.test", 443)},
	{name: "socks-udp", opens: "the worker sends datagrams for a tool", try: socksTo(3, "any.wild.test", 443)},
}

// kernel are ways beside TCP and UDP.
var kernel = []attempt{
	{name: "host-abstract-socket", opens: "a socket of the host is reached", try: func(b bait) (bool, string) { return abstract(b.abstract) }},
	{name: "other-sandbox", opens: "another sandbox is reached", try: func(b bait) (bool, string) { return abstract(b.peer) }},
	{name: "ping", opens: "an echo leaves", try: socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)},
	{name: "raw-icmp", opens: "any packet leaves", try: socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)},
	{name: "raw-ip", opens: "any packet leaves", try: socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)},
	{name: "raw-ipv6", opens: "any packet leaves", try: socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW)},
	{name: "packet", opens: "any frame leaves", try: socket(unix.AF_PACKET, unix.SOCK_RAW, 0)},
	{name: "vsock", opens: "the machine's host is reached", try: socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
	{name: "sctp", opens: "another protocol leaves", try: socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)},
	{name: "other-interface", opens: "there is an interface beyond loopback", try: interfaces},
}

func socket(family, kind, protocol int) func(bait) (bool, string) {
	return func(bait) (bool, string) {
		fd, err := unix.Socket(family, kind, protocol)
		if err != nil {
			return false, err.Error()
		}
		_ = unix.Close(fd)
		return true, "the socket was made"
	}
}

func abstract(name string) (bool, string) {
	c, err := dial("unix", "@"+name)
	if err != nil {
		return false, err.Error()
	}
	_ = c.Close()
	return true, "connected to @" + name
}

func interfaces(bait) (bool, string) {
	all, err := net.Interfaces()
	if err != nil {
		return false, err.Error()
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return true, i.Name
		}
	}
	return false, errors.New("only loopback is up").Error()
}
