package agui

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Frame is one event in a stream of server-sent events.
type Frame struct {
	// ID is what a client sends back as Last-Event-ID; empty is absent. A
	// client keeps the last one it saw.
	ID string
	// Data is the event, one JSON object.
	Data []byte
}

// ErrTooLong says that a frame is longer than the official client takes. What
// is large, media above all, travels by url.
var ErrTooLong = fmt.Errorf("agui: a frame is longer than %d bytes", MaxEvent)

// WriteFrame writes a frame in one Write, or nothing. Lines end with LF alone,
// because the official client fails on CRLF. A frame longer than [MaxEvent],
// with what stands around its data, is [ErrTooLong]. Flushing is the caller's.
func WriteFrame(w io.Writer, f Frame) error {
	if strings.ContainsAny(f.ID, "\r\n\x00") {
		return errors.New("agui: an event id with a line end in it")
	}
	data, err := oneLine(f.Data)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.Grow(min(len(f.ID)+len(data)+16, MaxEvent))
	if f.ID != "" {
		b.WriteString("id: " + f.ID + "\n")
	}
	b.WriteString("data: ")
	b.Write(data)
	b.WriteString("\n\n")
	if b.Len() > MaxEvent {
		return ErrTooLong
	}
	_, err = w.Write(b.Bytes())
	return err
}

// WriteComment writes a line that clients skip. Sent now and then, it tells
// both ends that the other is there.
func WriteComment(w io.Writer, text string) error {
	_, err := io.WriteString(w, ": "+strings.NewReplacer("\r", " ", "\n", " ").Replace(text)+"\n\n")
	return err
}

// WriteLine writes an event as a line of NDJSON, in one Write.
func WriteLine(w io.Writer, data []byte) error {
	data, err := oneLine(data)
	if err != nil {
		return err
	}
	_, err = w.Write(append(slices.Clip(data), '\n'))
	return err
}

// oneLine returns JSON without line ends, which can only stand between its
// tokens.
func oneLine(data []byte) ([]byte, error) {
	if !bytes.ContainsAny(data, "\r\n") {
		return data, nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return nil, fmt.Errorf("agui: an event that is not JSON: %w", err)
	}
	return b.Bytes(), nil
}

// FrameReader reads server-sent events. It takes LF and CRLF, and bounds a
// frame to [MaxEvent]. It is not safe for concurrent use.
type FrameReader struct{ lines lineReader }

// NewFrameReader reads from r.
func NewFrameReader(r io.Reader) *FrameReader { return &FrameReader{newLineReader(r)} }

// Next returns the next frame that has data, or io.EOF at the end of the
// stream. Comments and other fields are passed over. A last frame that the
// stream did not close is returned: a cut one is no JSON, and found out so.
func (f *FrameReader) Next() (Frame, error) {
	var (
		frame Frame
		some  bool
	)
	for {
		line, err := f.lines.next()
		if err != nil && (!errors.Is(err, io.EOF) || !some) {
			return Frame{}, err
		}
		if err != nil || (len(line) == 0 && some) {
			return frame, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if some {
				frame.Data = append(frame.Data, '\n')
			}
			frame.Data, some = append(frame.Data, value...), true
			if len(frame.Data) > MaxEvent {
				return Frame{}, tooLong()
			}
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				frame.ID = string(value)
			}
		}
	}
}

// LineReader reads NDJSON. It bounds a line to [MaxEvent]. It is not safe for
// concurrent use.
type LineReader struct{ lines lineReader }

// NewLineReader reads from r.
func NewLineReader(r io.Reader) *LineReader { return &LineReader{newLineReader(r)} }

// Next returns the next line that is not blank, or io.EOF at the end of the
// stream. A last line without its newline is returned: a cut one is no JSON.
func (l *LineReader) Next() ([]byte, error) {
	for {
		line, err := l.lines.next()
		if err != nil {
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return bytes.Clone(line), nil
		}
	}
}

// lineReader reads lines of at most MaxEvent bytes and a little for the field's
// name.
type lineReader struct {
	r    *bufio.Reader
	long []byte
}

func newLineReader(r io.Reader) lineReader { return lineReader{r: bufio.NewReaderSize(r, 16<<10)} }

// next returns the next line without its end. It is valid until the next call.
// At the end of the stream a line without an end is a line too.
func (l *lineReader) next() ([]byte, error) {
	l.long = l.long[:0]
	for {
		piece, err := l.r.ReadSlice('\n')
		if err == nil && len(l.long) == 0 {
			return trimEnd(piece), nil
		}
		l.long = append(l.long, piece...)
		switch {
		case len(l.long) > MaxEvent+len("data: \r\n"):
			return nil, tooLong()
		case err == nil, errors.Is(err, io.EOF) && len(l.long) > 0:
			return trimEnd(l.long), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

func tooLong() error {
	return &MalformedError{Message: fmt.Sprintf("is longer than %d bytes", MaxEvent)}
}
