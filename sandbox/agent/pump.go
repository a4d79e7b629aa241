package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// pump carries one of the tool's pipes. It holds one chunk; while that chunk is
// being sent it reads no further, and the tool waits.
type pump struct {
	file *os.File
	fd   int
	take func(piece []byte) error

	// For whoever waited for run:
	held bool  // others still held the pipe when it was stopped
	err  error // of take
}

func newPump(file *os.File, take func([]byte) error) *pump {
	return &pump{file: file, fd: int(file.Fd()), take: take}
}

// chunks are used again by the next call of a sandbox of cells.
var chunks = sync.Pool{New: func() any { return new([wire.MaxChunk]byte) }}

// run reads until the end of the pipe, or until stop and then what is in it.
func (p *pump) run() {
	defer func() { _ = p.file.Close() }()
	chunk := chunks.Get().(*[wire.MaxChunk]byte)
	defer chunks.Put(chunk)
	buf := chunk[:]
	for {
		n, err := p.file.Read(buf)
		if n > 0 {
			if p.err = p.take(buf[:n]); p.err != nil {
				return
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.drain(buf)
			return
		}
		if err != nil {
			return
		}
	}
}

// stop makes run return soon, even when others hold the pipe open.
func (p *pump) stop() { _ = p.file.SetReadDeadline(time.Unix(1, 0)) }

// drain reads what was in the pipe when it was called (TIOCINQ, which other
// systems call FIONREAD, tells how much), and no more: a process
// that was left behind may write for ever. It reads past the file, whose
// deadline would refuse.
func (p *pump) drain(buf []byte) {
	left, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ)
	for err == nil && left > 0 {
		var n int
		n, err = unix.Read(p.fd, buf[:min(left, len(buf))])
		if errors.Is(err, unix.EINTR) {
			err = nil
			continue
		}
		if n <= 0 {
			break
		}
		left -= n
		if p.err = p.take(buf[:n]); p.err != nil {
			return
		}
	}
	poll := []unix.PollFd{{Fd: int32(p.fd)}}
	_, _ = unix.Poll(poll, 0)
	p.held = poll[0].Revents&unix.POLLHUP == 0
}

// splitter cuts a stream into lines and sends those that are not blank. After a
// line that is too long it drops everything.
type splitter struct {
	send func(line []byte) error
	part []byte // of a line whose end has not come
	long bool
}

// add takes the next piece of the stream.
func (s *splitter) add(piece []byte) error {
	for !s.long {
		line, rest, found := bytes.Cut(piece, []byte{'\n'})
		if len(s.part)+len(line) > wire.MaxMessage {
			s.long, s.part = true, nil
			return nil
		}
		if !found {
			s.part = append(s.part, line...)
			return nil
		}
		if len(s.part) > 0 {
			line = append(s.part, line...)
			s.part = line[:0]
		}
		if err := s.line(line); err != nil {
			return err
		}
		piece = rest
	}
	return nil
}

// end is the end of the stream. A last line without its newline counts when it
// is whole, since authors forget the newline. Half a line is what a tool leaves
// that was killed or fell over, and drops out; of one that has ended in order it
// counts too, so that half an answer is not taken for none.
func (s *splitter) end(inOrder bool) error {
	if !inOrder && !json.Valid(s.part) {
		return nil
	}
	return s.line(s.part)
}

func (s *splitter) line(line []byte) error {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil
	}
	return s.send(line)
}
