package secret

import (
	"io"
	"slices"
)

// Reader returns a reader of what is in from, without the secrets; from itself
// when r knows none.
func (r *Redactor) Reader(from io.Reader) io.Reader {
	if r == nil {
		return from
	}
	return &reader{from: from, clean: r.Stream()}
}

type reader struct {
	from  io.Reader
	clean *Stream
	buf   [16 << 10]byte
	ready []byte // may be read
	err   error  // of from, for when all is read
}

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	for len(r.ready) == 0 && r.err == nil {
		var n int
		n, r.err = r.from.Read(r.buf[:])
		r.ready = r.clean.Write(r.buf[:n])
		if r.err != nil {
			r.ready = append(slices.Clip(r.ready), r.clean.Close()...)
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	if n == 0 && len(p) > 0 {
		return 0, r.err
	}
	return n, nil
}
