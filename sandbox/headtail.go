package sandbox

import "fmt"

// What is kept of stderr: together at most 64 KiB, with room for the mark.
const (
	stderrHead = 32<<10 - 64
	stderrTail = 32 << 10
)

// headTail keeps the first and the last bytes of a stream of any length.
type headTail struct {
	head, tail []byte
	dropped    int64 // bytes between them
	total      int64 // bytes of the whole stream
}

// add takes the next bytes of the stream.
func (h *headTail) add(b []byte) {
	h.total += int64(len(b))
	n := min(len(b), stderrHead-len(h.head))
	h.head = append(h.head, b[:n]...)
	h.tail = append(h.tail, b[n:]...)
	// Cut only when twice the size has come together, so that a byte is moved
	// once and not with every piece.
	if len(h.tail) > 2*stderrTail {
		h.cut()
	}
}

func (h *headTail) cut() {
	if extra := len(h.tail) - stderrTail; extra > 0 {
		h.dropped += int64(extra)
		h.tail = append(h.tail[:0], h.tail[extra:]...)
	}
}

// bytes returns what was kept, with a mark where something is missing.
func (h *headTail) bytes() []byte {
	h.cut()
	if len(h.tail) == 0 {
		return h.head
	}
	all := make([]byte, 0, len(h.head)+len(h.tail)+64)
	all = append(all, h.head...)
	if h.dropped > 0 {
		all = fmt.Appendf(all, "\n[… %d bytes left out …]\n", h.dropped)
	}
	return append(all, h.tail...)
}
