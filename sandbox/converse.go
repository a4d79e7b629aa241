package sandbox

import "github.com/toolfleet/toolfleet/sandbox/wire"

// converse is feed for a run with an Input. Nothing of the Input is taken before
// the tool has started: when a sandbox is lost before that, its Process can be
// run in another, and the Input must still be whole.
func (r *run) converse(out *wire.Writer, opening []wire.Frame, p Process, last []wire.Frame) {
	defer close(r.fed)
	if !r.put(out, opening...) ||
		!r.sendStdin(out, p.Stdin) || !r.awaitStart() {
		return
	}
	for {
		select {
		case piece, more := <-p.Input:
			if !more {
				r.prepared = r.put(out, last...) && len(last) > 1
				close(r.quiet)
				return
			}
			if !r.sendStdin(out, piece) {
				return
			}
		case <-r.ended:
			return
		}
	}
}

// awaitStart reports whether the tool has started; false when the run has ended
// before.
func (r *run) awaitStart() bool {
	for {
		r.mu.Lock()
		began := !r.began.IsZero()
		r.mu.Unlock()
		if began {
			return true
		}
		select {
		case <-r.more:
		case <-r.ended:
			return false
		}
	}
}

// sendStdin sends b as the window allows, and reports whether all of it went out.
func (r *run) sendStdin(out *wire.Writer, b []byte) bool {
	for len(b) > 0 {
		n := r.window(min(len(b), wire.MaxChunk))
		if n == 0 || !r.put(out, wire.Frame{Kind: wire.KindStdin, Stream: r.stream, Payload: b[:n]}) {
			return false
		}
		b = b[n:]
	}
	return true
}

// put sends frames; a broken stream ends the run.
func (r *run) put(out *wire.Writer, frames ...wire.Frame) bool {
	err := out.Frames(frames...)
	if err != nil {
		r.end(ending{lost: err})
	}
	return err == nil
}
