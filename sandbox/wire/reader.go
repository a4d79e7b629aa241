package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrFrame says that the other side broke the rules of the language. Every
// violation that a [Reader] finds wraps it.
var ErrFrame = errors.New("wire: bad frame")

// readBuffer is a little more than one frame of the largest chunk, so that a
// flood of output costs one system call a frame.
const readBuffer = MaxChunk + HeaderSize

// Reader reads frames. It is for one goroutine.
type Reader struct {
	r       *bufio.Reader
	header  [HeaderSize]byte
	payload []byte
	err     error
}

// NewReader returns a reader of the frames in r. It reads ahead by at most
// one frame.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, readBuffer)}
}

// Next returns the next frame, which is valid until the call after it.
//
// The end of the stream between two frames is io.EOF, inside a frame
// io.ErrUnexpectedEOF, and a broken rule wraps [ErrFrame]. The first error is
// the last answer: every later call returns it again.
func (r *Reader) Next() (Frame, error) {
	if r.err != nil {
		return Frame{}, r.err
	}
	f, err := r.next()
	if err != nil {
		r.err = err
		return Frame{}, err
	}
	return f, nil
}

func (r *Reader) next() (Frame, error) {
	if _, err := io.ReadFull(r.r, r.header[:]); err != nil {
		return Frame{}, err
	}
	size := binary.BigEndian.Uint32(r.header[:4])
	f := Frame{Kind: Kind(r.header[4]), Stream: binary.BigEndian.Uint32(r.header[5:])}
	if !f.Kind.known() {
		return Frame{}, fmt.Errorf("%w: %v is unknown", ErrFrame, f.Kind)
	}
	if limit := kinds[f.Kind].max; uint64(size) > uint64(limit) {
		return Frame{}, fmt.Errorf("%w: %v of %d bytes, at most %d are allowed", ErrFrame, f.Kind, size, limit)
	}
	f.Payload = r.room(int(size))
	if _, err := io.ReadFull(r.r, f.Payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return f, nil
}

// room returns n bytes to read a payload into. It grows with what really
// comes, so that a warm sandbox costs a few kilobytes and not the largest
// frame.
func (r *Reader) room(n int) []byte {
	if cap(r.payload) < n {
		r.payload = make([]byte, max(n, 2*cap(r.payload), 512))
	}
	return r.payload[:n]
}
