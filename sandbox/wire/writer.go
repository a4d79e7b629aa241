package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Writer writes frames. It is safe for concurrent use: frames never mix.
type Writer struct {
	// lock holds one token while a frame is written; it guards w and buf. A
	// channel, since who waits for it may wait for as long as the other side
	// does not read, which no mutex is made for.
	lock chan struct{}
	w    io.Writer
	buf  []byte
}

// NewWriter returns a writer of frames to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, lock: make(chan struct{}, 1)} }

// Frame writes one frame, in one Write of the underlying writer. It refuses
// what the reader on the other side would refuse.
func (w *Writer) Frame(kind Kind, stream uint32, payload []byte) error {
	return w.Frames(Frame{kind, stream, payload})
}

// Frames writes several frames in one Write, for a conversation that need not
// wake the other side for each of them.
func (w *Writer) Frames(frames ...Frame) error {
	for _, f := range frames {
		if err := check(f); err != nil {
			return err
		}
	}
	w.lock <- struct{}{}
	defer func() { <-w.lock }()
	w.buf = w.buf[:0]
	for _, f := range frames {
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(f.Payload)))
		w.buf = append(w.buf, byte(f.Kind))
		w.buf = binary.BigEndian.AppendUint32(w.buf, f.Stream)
		w.buf = append(w.buf, f.Payload...)
	}
	_, err := w.w.Write(w.buf)
	return err
}

// check refuses a frame that the other side would refuse.
func check(f Frame) error {
	if !f.Kind.known() {
		return fmt.Errorf("%w: %v is unknown", ErrFrame, f.Kind)
	}
	if limit := kinds[f.Kind].max; len(f.Payload) > limit {
		return fmt.Errorf("%w: %v of %d bytes, at most %d are allowed", ErrFrame, f.Kind, len(f.Payload), limit)
	}
	return nil
}

// JSON writes one frame whose payload is v as JSON.
func (w *Writer) JSON(kind Kind, stream uint32, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("wire: %v: %w", kind, err)
	}
	return w.Frame(kind, stream, payload)
}
