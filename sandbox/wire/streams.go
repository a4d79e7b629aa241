package wire

import (
	"encoding/binary"
	"fmt"
)

// Streams are what a tool's connections travel in: the agent listens on loopback
// addresses inside the sandbox and forwards, the host answers. A frame of one
// says in its first four bytes which, by a number that the agent counts up from 1
// in each run and never uses twice.
//
//	agent                      host
//	open ─────────────────────▶          somebody connected to a listener
//	data … ───────────────────▶          at once, as far as the window reaches
//	      ◀──────────────────── credit   so many bytes were taken
//	      ◀──────────────────── data …
//	credit ───────────────────▶
//	end ──────────────────────▶          no more data from this side
//	      ◀──────────────────── end
//
// There is no frame that accepts: a host that does not want a stream resets it,
// and what came until then fits into the window. A reset from either side ends
// both directions; after an end of the host's it means that the host wants no
// more data either, and what it sent before still reaches the tool.
//
// A datagram is a stream of its own, with one data frame and an end; each data
// frame that comes back is a datagram to where it came from.
const (
	// StreamWindow bounds the data of one stream and one direction that is under
	// way and that no credit answered, in bytes: all that either side ever holds
	// of a stream whose other end does not read.
	StreamWindow = 64 << 10
	// MaxStreams is how many streams of a run may be open at once. An agent that
	// opens more breaks the rules: it has to refuse them itself.
	MaxStreams = 1024
	// MaxStreamData bounds one data frame, so that the frame has the size of a
	// chunk.
	MaxStreamData = MaxChunk - StreamPrefix
	// StreamPrefix is the size of the stream's number before the data.
	StreamPrefix = 4
	// MaxListeners bounds the listeners of a run.
	MaxListeners = 256
)

// Listener is a loopback address inside the sandbox that the agent listens on for
// one run.
type Listener struct {
	// Network is "tcp", or "udp" for datagrams.
	Network string `json:"network"`
	// Address is an IP address and a port.
	Address string `json:"address"`
}

// OpenPayload is the payload of an open frame: the stream and the place of its
// listener in the start frame.
func OpenPayload(id uint32, listener int) []byte {
	return binary.BigEndian.AppendUint16(StreamPayload(id), uint16(listener))
}

// StreamPayload is the payload of an end or a reset, and the beginning of all
// others: the number of the stream.
func StreamPayload(id uint32) []byte {
	return binary.BigEndian.AppendUint32(make([]byte, 0, 2*StreamPrefix), id)
}

// StreamCredit is the payload of a credit frame for n bytes.
func StreamCredit(id uint32, n int) []byte {
	return binary.BigEndian.AppendUint32(StreamPayload(id), uint32(n))
}

// DecodeStream reads the number of the stream, and what follows it. The size of
// what follows is checked for every kind: exact for all but data, which has at
// least one byte.
func DecodeStream(f Frame) (id uint32, rest []byte, err error) {
	least, most := 0, 0
	switch f.Kind {
	case KindOpen:
		least, most = 2, 2
	case KindStreamCredit:
		least, most = 4, 4
	case KindData:
		least, most = 1, MaxStreamData
	}
	if n := len(f.Payload) - StreamPrefix; n < least || n > most {
		return 0, nil, fmt.Errorf("%w: %v of %d bytes", ErrFrame, f.Kind, len(f.Payload))
	}
	if id = binary.BigEndian.Uint32(f.Payload); id == 0 {
		return 0, nil, fmt.Errorf("%w: %v of stream 0", ErrFrame, f.Kind)
	}
	return id, f.Payload[StreamPrefix:], nil
}

// DecodeOpen reads the listener of an open frame, what follows its stream.
func DecodeOpen(rest []byte) int { return int(binary.BigEndian.Uint16(rest)) }

// DecodeStreamCredit reads the bytes of a credit frame, what follows its stream.
func DecodeStreamCredit(rest []byte) (int, error) {
	n := binary.BigEndian.Uint32(rest)
	if n == 0 || n > StreamWindow {
		return 0, fmt.Errorf("%w: credit for %d bytes of a stream, more than the window", ErrFrame, n)
	}
	return int(n), nil
}
