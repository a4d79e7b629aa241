package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// holdTime is how long a frame waits for company. It is short beside all that
// people notice and long beside the end of a tool that has said its last word.
const holdTime = time.Millisecond

// Writer writes frames. It is safe for concurrent use: frames never mix.
type Writer struct {
	// lock holds one token while a frame is written; it guards the fields
	// below. A channel, since who waits for it may wait for as long as the other
	// side does not read, which no mutex is made for.
	lock  chan struct{}
	w     io.Writer
	buf   []byte      // frames that are held; empty while timer does not run
	timer *time.Timer // nil until the first frame is held
	err   error       // the first of a write, and of all after it
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
	for _, f := range frames {
		w.append(f)
	}
	return w.flush()
}

// Later writes one frame together with the next one, or after a millisecond, or
// when there is a chunk of them: most tools end right after their last output,
// and every Write wakes the other side. An error may be that of an earlier
// frame.
func (w *Writer) Later(kind Kind, stream uint32, payload []byte) error {
	f := Frame{kind, stream, payload}
	if err := check(f); err != nil {
		return err
	}
	w.lock <- struct{}{}
	defer func() { <-w.lock }()
	first := len(w.buf) == 0
	w.append(f)
	switch {
	case w.err != nil || len(w.buf) >= MaxChunk:
		return w.flush()
	case !first:
	case w.timer == nil:
		w.timer = time.AfterFunc(holdTime, w.late)
	default:
		w.timer.Reset(holdTime)
	}
	return nil
}

// late writes what nothing came for.
func (w *Writer) late() {
	w.lock <- struct{}{}
	defer func() { <-w.lock }()
	if len(w.buf) > 0 {
		_ = w.flush() // and keeps the error
	}
}

// append adds f to what is written next. The caller holds lock.
func (w *Writer) append(f Frame) {
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(f.Payload)))
	w.buf = append(w.buf, byte(f.Kind))
	w.buf = binary.BigEndian.AppendUint32(w.buf, f.Stream)
	w.buf = append(w.buf, f.Payload...)
}

// flush writes what there is. The caller holds lock.
func (w *Writer) flush() error {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.err == nil {
		_, w.err = w.w.Write(w.buf)
	}
	w.buf = w.buf[:0]
	return w.err
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
