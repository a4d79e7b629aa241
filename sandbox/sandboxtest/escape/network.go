package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const dialTimeout = 2 * time.Second

var networkAttempts = []attempt{
	{name: "host-loopback", opens: "the tool reaches what listens on the host's loopback", try: func(b bait) outcome {
		return each([]string{"127.0.0.1", "::1", "127.0.0.53", "0.0.0.0", "localhost"}, func(host string) outcome { return dial(host, b.port) })
	}},
	{name: "host-addresses", opens: "the tool reaches what listens on the host's addresses", try: func(b bait) outcome {
		outcomes := []outcome{denied(errors.New("the host has no address but loopback's"))}
		for host := range strings.SplitSeq(b.addresses, ",") {
			if host != "" {
				outcomes = append(outcomes, dial(host, b.port))
			}
		}
		return first(outcomes...)
	}},
	{name: "host-abstract-socket", opens: "the tool reaches abstract sockets of the host, such as a shim's", try: func(b bait) outcome { return connectUnix("@" + b.abstract) }},
	{name: "other-sandbox-socket", opens: "the tool reaches another sandbox", try: func(b bait) outcome { return connectUnix("@" + b.peer) }},
	{name: "list-host-sockets", opens: "the tool sees sockets that are not its own", try: listSockets},
	{name: "route-to-internet", opens: "the tool has a way to the internet", try: routes("8.8.8.8", "1.1.1.1", "2001:4860:4860::8888")},
	{name: "route-to-private-networks", opens: "the tool has a way to the host's networks", try: routes("10.0.0.1", "172.16.0.1", "172.17.0.1", "192.168.0.1", "100.64.0.1", "fd00::1", "224.0.0.1", "255.255.255.255")},
	{name: "cloud-metadata", opens: "the tool asks the cloud for the host's credentials", try: routes("169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "100.100.100.200")},
	{name: "dns", opens: "the tool sends names to the world", try: resolves},
	{name: "other-interfaces", opens: "the tool has an interface beyond loopback", try: interfaces},
	{name: "add-interface", opens: "the tool makes a network interface", try: addInterface},
	{name: "add-address", opens: "the tool gives itself an address", try: func(bait) outcome {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return judge(err, "")
		}
		ifr, err := unix.NewIfreq("lo")
		if err != nil {
			return open("cannot tell: %v", err)
		}
		ifr.SetUint16(unix.IFF_UP | unix.IFF_PROMISC)
		return judge(unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr), "changed lo")
	}},
}

func dial(host string, port int) outcome {
	c, err := (&net.Dialer{Timeout: dialTimeout}).Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return denied(err)
	}
	_ = c.Close()
	return open("reached %s", c.RemoteAddr())
}

// connectUnix connects to a path, or with "@" to an abstract name.
func connectUnix(name string) outcome {
	outcomes := make([]outcome, 0, 3)
	for _, network := range []string{"unix", "unixgram", "unixpacket"} {
		c, err := (&net.Dialer{Timeout: dialTimeout}).Dial(network, name)
		if err != nil {
			outcomes = append(outcomes, denied(err))
			continue
		}
		_ = c.Close()
		outcomes = append(outcomes, open("connected to %s", name))
	}
	return first(outcomes...)
}

// listSockets: this process has no socket open, so the tables are empty but for
// headings. They show everything in the network namespace.
func listSockets(b bait) outcome {
	text := fmt.Sprintf("%04X", b.port)
	outcomes := []outcome{denied(errors.New("no table names the host's sockets"))}
	for _, table := range []string{"tcp", "tcp6", "unix"} {
		content := readAll("/proc/net/" + table)
		if strings.Contains(content, ":"+text+" ") || strings.Contains(content, b.abstract) || strings.Contains(content, b.peer) {
			outcomes = append(outcomes, open("/proc/net/%s names a socket of the host", table))
		}
	}
	return first(outcomes...)
}

// routes is open when the kernel has a route: to connect a datagram socket
// sends nothing.
func routes(hosts ...string) func(bait) outcome {
	return func(bait) outcome {
		return each(hosts, func(host string) outcome {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(host), 53)))
			if err != nil {
				return denied(err)
			}
			_ = c.Close()
			return open("there is a route to %s", host)
		})
	}
}

// resolves is open when a server of names answers on loopback, where a bridge
// would have put one, or when there is a route to one elsewhere that is
// configured.
func resolves(b bait) outcome {
	local := []string{"127.0.0.1", "127.0.0.11", "127.0.0.53"}
	var outcomes []outcome
	for line := range strings.Lines(readAll("/etc/resolv.conf")) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[0] != "nameserver" {
			continue
		}
		switch server, err := netip.ParseAddr(fields[1]); {
		case err != nil:
		case server.IsLoopback():
			local = append(local, fields[1])
		default:
			outcomes = append(outcomes, routes(fields[1])(b))
		}
	}
	for _, host := range local {
		outcomes = append(outcomes, dial(host, 53), asks(host))
	}
	return first(outcomes...)
}

// asks is open when anything comes back to a question for an address. Where
// nobody listens on loopback, the kernel says so at once.
func asks(host string) outcome {
	c, err := (&net.Dialer{Timeout: dialTimeout}).Dial("udp", net.JoinHostPort(host, "53"))
	if err != nil {
		return denied(err)
	}
	defer c.Close()
	question := "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01"
	if _, err := c.Write([]byte(question)); err != nil {
		return denied(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Read(make([]byte, 512)); err != nil {
		return denied(err)
	}
	return open("%s answers for names", host)
}

func interfaces(bait) outcome {
	all, err := net.Interfaces()
	if err != nil {
		return denied(err)
	}
	for _, i := range all {
		// Kernels with tunnel modules give every namespace their fallback
		// devices, which are down.
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return open("%s is up", i.Name)
		}
	}
	return denied(errors.New("only loopback is up"))
}

// addInterface sends RTM_NEWLINK for a dummy device.
func addInterface(bait) outcome {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return judge(err, "")
	}
	kind := []byte("dummy\x00\x00\x00")
	info := append(attribute(18, attribute(1, kind)), []byte{}...) // IFLA_LINKINFO, IFLA_INFO_KIND
	body := append(make([]byte, 16), info...)
	return judge(netlink(fd, unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body), "made an interface")
}

func attribute(kind uint16, value []byte) []byte {
	out := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	out = binary.NativeEndian.AppendUint16(out, kind)
	return append(out, value...)
}

// netlink sends one request and returns the kernel's answer.
func netlink(fd int, kind, flags uint16, body []byte) error {
	msg := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, kind)
	msg = binary.NativeEndian.AppendUint16(msg, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg = append(append(msg, make([]byte, 8)...), body...)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < 20 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(answer[16:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
