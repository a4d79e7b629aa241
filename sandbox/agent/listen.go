package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// listener is a socket on which the tool finds what it may reach.
type listener struct {
	file     *os.File
	conn     syscall.RawConn
	datagram bool
}

// backlog is how many connections may wait to be accepted: the most that Linux
// grants by default.
const backlog = 4096

// listenAll makes the tool's listeners, in the network namespace of the calling
// thread, which is the cell's where there is one. It comes before the thread is
// locked down, for ports below 1024 are not everybody's.
//
// Package net would do this too, and bring a resolver, a dialer and what they
// do at their start into every sandbox. Nothing here needs more than five system
// calls.
func listenAll(want []wire.Listener) (all []listener, err error) {
	defer func() {
		if err != nil {
			closeListeners(all)
		}
	}()
	if len(want) > wire.MaxListeners {
		return nil, fmt.Errorf("listen: %d addresses, at most %d are allowed", len(want), wire.MaxListeners)
	}
	for _, w := range want {
		l, err := listen(w)
		if err != nil {
			return all, fmt.Errorf("listen on %s: %w", w.Address, err)
		}
		all = append(all, l)
	}
	return all, nil
}

func closeListeners(all []listener) {
	for _, l := range all {
		_ = l.file.Close()
	}
}

func listen(w wire.Listener) (listener, error) {
	at, err := netip.ParseAddrPort(w.Address)
	if err != nil || !at.Addr().Is4() {
		return listener{}, fmt.Errorf("not an address of IPv4: %w", unix.EINVAL)
	}
	kind := unix.SOCK_STREAM
	if w.Network == "udp" {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return listener{}, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		_ = unix.Close(fd)
		return listener{}, err
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, backlog); err != nil {
			_ = unix.Close(fd)
			return listener{}, err
		}
	}
	file := os.NewFile(uintptr(fd), w.Address)
	conn, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return listener{}, err
	}
	return listener{file: file, conn: conn, datagram: kind == unix.SOCK_DGRAM}, nil
}

// errStopped says that nothing more comes.
var errStopped = errors.New("stopped listening")

// stop makes whoever waits for the next return errStopped, once those are taken
// that had come before: a program may connect, send and exit before the agent has
// looked.
func (l listener) stop() { _ = l.file.SetReadDeadline(time.Unix(1, 0)) }

// accept waits for the next connection.
func (l listener) accept() (fd int, err error) {
	try := func(s uintptr) {
		fd, _, err = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	}
	waited := l.conn.Read(func(s uintptr) bool {
		try(s)
		return err != unix.EAGAIN
	})
	if waited != nil {
		if gone := l.conn.Control(try); gone != nil || errors.Is(err, unix.EAGAIN) {
			return -1, errStopped
		}
	}
	return fd, err
}

// receive waits for the next datagram and reads it into buf.
func (l listener) receive(buf []byte) (n int, from unix.Sockaddr, err error) {
	waited := l.conn.Read(func(s uintptr) bool {
		n, from, err = unix.Recvfrom(int(s), buf, 0)
		return err != unix.EAGAIN
	})
	if waited != nil {
		return 0, nil, errStopped
	}
	return n, from, err
}

// reply sends a datagram. A tool that does not read its own loses it, as
// anywhere.
func (l listener) reply(to unix.Sockaddr, b []byte) {
	_ = l.conn.Control(func(s uintptr) { _ = unix.Sendto(int(s), b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, to) })
}
