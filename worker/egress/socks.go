package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"time"
)

// SOCKS5, RFC 1928: as much as a client needs that connects. The libraries there
// are want to listen, dial and resolve themselves, and to have that taken away
// from them is more than this is.
const (
	socksVersion = 5
	socksNoAuth  = 0
	socksConnect = 1

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4
)

// The replies.
const (
	socksOK             = 0
	socksNotAllowed     = 2
	socksUnreachable    = 4
	socksNoSuchCommand  = 7
	socksNoSuchAddress  = 8
	socksNoSuchMethod   = 0xff
	socksReplyNoAddress = "\x00\x01\x00\x00\x00\x00\x00\x00"
)

var errSOCKS = errors.New("egress: no SOCKS5")

func (c *Call) serveSOCKS(ctx context.Context, conn *buffered) {
	to, refusal, err := readSOCKS(conn, conn)
	if err != nil {
		return // closed by who serves
	}
	if refusal != socksOK {
		reply(conn, refusal)
		return
	}
	up, err := c.connect(ctx, to)
	if err != nil {
		refusal = socksNotAllowed
		var d *Denial
		if errors.As(err, &d) && (d.Reason == reasonFailed || d.Reason == reasonName) {
			refusal = socksUnreachable
		}
		reply(conn, refusal)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	reply(conn, socksOK)
	carry(ctx, conn, up)
}

func reply(w io.Writer, code byte) {
	_, _ = io.WriteString(w, string([]byte{socksVersion, code})+socksReplyNoAddress)
}

// readSOCKS reads a greeting, answers it, and reads a request: at most 519 bytes.
// refusal is the reply to a request that is in order and not for us.
func readSOCKS(r io.Reader, w io.Writer) (to target, refusal byte, err error) {
	methods, err := readCounted(r, socksVersion)
	if err != nil {
		return target{}, 0, err
	}
	method := byte(socksNoSuchMethod)
	for _, m := range methods {
		if m == socksNoAuth {
			method = socksNoAuth
		}
	}
	if _, err := w.Write([]byte{socksVersion, method}); err != nil {
		return target{}, 0, err
	}
	var head [4]byte // version, command, reserved, kind of address
	if _, err := io.ReadFull(r, head[:]); err != nil || method != socksNoAuth || head[0] != socksVersion {
		return target{}, 0, errors.Join(errSOCKS, err)
	}
	host, err := readHost(r, head[3])
	if err != nil {
		return target{}, 0, err
	}
	var port [2]byte
	if _, err := io.ReadFull(r, port[:]); err != nil {
		return target{}, 0, err
	}
	switch {
	case head[1] != socksConnect:
		return target{}, socksNoSuchCommand, nil
	case host == "":
		return target{}, socksNoSuchAddress, nil
	}
	to, err = parseTarget(host, binary.BigEndian.Uint16(port[:]))
	if err != nil {
		return target{}, socksNotAllowed, nil //nolint:nilerr // the reply says so
	}
	return to, socksOK, nil
}

// readCounted reads a byte that has to be first, a length, and as many bytes.
func readCounted(r io.Reader, first byte) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	if head[0] != first {
		return nil, errSOCKS
	}
	b := make([]byte, head[1])
	_, err := io.ReadFull(r, b)
	return b, err
}

func readHost(r io.Reader, kind byte) (string, error) {
	var size int
	switch kind {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		var n [1]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return "", err
		}
		size = int(n[0])
	default:
		return "", errSOCKS
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return "", err
	}
	if addr, ok := netip.AddrFromSlice(b); ok && kind != socksName {
		return addr.String(), nil
	}
	return string(b), nil
}
