package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Families and kinds of sockets are the largest part of the kernel that an
// ordinary user reaches, and a socket may make it load another module.
var familyAttempts = []attempt{
	{name: "raw-socket", opens: "the tool forges packets", try: sockets(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, unix.IPPROTO_TCP, unix.IPPROTO_RAW)},
	{name: "raw-socket-ipv6", opens: "the tool forges packets", try: sockets(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6, unix.IPPROTO_RAW)},
	{name: "packet-socket", opens: "the tool reads and writes frames", try: anyOf(sockets(unix.AF_PACKET, unix.SOCK_RAW, 0x300), sockets(unix.AF_PACKET, unix.SOCK_DGRAM, 0))},
	{name: "vsock-socket", opens: "the tool speaks to the hypervisor", try: sockets(unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
	{name: "alg-socket", opens: "the tool uses the kernel's cryptography", try: sockets(unix.AF_ALG, unix.SOCK_SEQPACKET, 0)},
	{name: "odd-socket-families", opens: "the tool reaches protocols that no tool needs", try: oddFamilies},
	{name: "odd-internet-protocols", opens: "the tool reaches transports that no tool needs", try: anyOf(
		sockets(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP), sockets(unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP),
		sockets(unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP), sockets(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE), sockets(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_L2TP))},
	{name: "netlink-audit", opens: "the tool writes to the audit log", try: netlinkAudit},
	{name: "netlink-odd-families", opens: "the tool reaches netlink families that no tool needs", try: sockets(unix.AF_NETLINK, unix.SOCK_RAW,
		unix.NETLINK_XFRM, unix.NETLINK_NETFILTER, unix.NETLINK_KOBJECT_UEVENT, unix.NETLINK_CONNECTOR, unix.NETLINK_CRYPTO, unix.NETLINK_GENERIC, unix.NETLINK_ISCSI, unix.NETLINK_RDMA)},
	{name: "diagnose-sockets", opens: "the tool lists sockets by netlink", try: sockets(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG)},
}

// sockets is open when a socket can be made.
func sockets(family, kind int, protocols ...int) func(bait) outcome {
	return func(bait) outcome {
		return each(protocols, func(protocol int) outcome {
			fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
			if err == unix.EAFNOSUPPORT || err == unix.EPROTONOSUPPORT || err == unix.ESOCKTNOSUPPORT {
				return absent("the kernel has no such socket: %v", err)
			}
			return descriptor(uintptr(fd), err, fmt.Sprintf("a socket of family %d, kind %d, protocol %d", family, kind, protocol))
		})
	}
}

func anyOf(tries ...func(bait) outcome) func(bait) outcome {
	return func(b bait) outcome {
		return each(tries, func(try func(bait) outcome) outcome { return try(b) })
	}
}

// oddFamilies tries every family and kind that is not one of the four that
// programs use.
func oddFamilies(bait) outcome {
	usual := []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
	var reached []string
	for family := 1; family < 50; family++ {
		if slices.Contains(usual, family) {
			continue
		}
		for kind := 1; kind <= 10; kind++ {
			// EAFNOSUPPORT and the like come from the kernel: the filter let
			// the call pass, and the kernel has looked for a module.
			fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				_ = unix.Close(fd)
			}
			_, pairErr := unix.Socketpair(family, kind|unix.SOCK_CLOEXEC, 0)
			if err != unix.EPERM || pairErr != unix.EPERM {
				reached = append(reached, strconv.Itoa(family))
				break
			}
		}
	}
	if len(reached) > 0 {
		return open("the kernel is asked for families %v", reached)
	}
	return denied(unix.EPERM)
}

// netlinkAudit sends a user message, which anybody with the capability may.
func netlinkAudit(bait) outcome {
	const auditUser = 1005
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_AUDIT)
	if err == unix.EPROTONOSUPPORT {
		return absent("the kernel has no audit")
	}
	if err != nil {
		return judge(err, "")
	}
	return judge(netlink(fd, auditUser, 0, []byte("escape\x00")), "wrote to the audit log")
}

func readAll(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}
