package agent

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// stdin holds the bytes for the tool's stdin between the host, which must never
// be kept waiting, and the tool, which may never read. The host's window bounds
// it.
type stdin struct {
	mu      sync.Mutex // guards everything below
	more    *sync.Cond // pending or closed changed
	pending []byte
	owed    int // bytes taken from the host and not credited yet
	closed  bool
	ended   bool          // the tool has ended: what still comes is dropped
	done    chan struct{} // closed when run has returned
}

func newStdin() *stdin {
	s := &stdin{done: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	return s
}

// add takes bytes from the host.
func (s *stdin) add(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil // it was on its way
	}
	if s.closed || s.owed+len(b) > wire.StdinWindow {
		return fmt.Errorf("%w: stdin after its end or beyond its window", wire.ErrFrame)
	}
	s.owed += len(b)
	s.pending = append(s.pending, b...)
	s.more.Signal()
	return nil
}

// close says that no more bytes come.
func (s *stdin) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.more.Signal()
}

// end makes run return, and waits for it: after the exit of a tool nothing is
// said of its stdin. Precondition: nobody holds the other end of the file, or
// it can be given up.
func (s *stdin) end(file *os.File) {
	s.drop()
	_ = file.SetWriteDeadline(time.Unix(1, 0))
	<-s.done
}

// drop drops what there is and what still comes.
func (s *stdin) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.ended, s.pending = true, true, nil
	s.more.Signal()
}

// creditEvery is how much is taken before the host is told, and another frame
// sent. Most arguments are shorter than that, and the host needs no credit then.
const creditEvery = wire.StdinWindow / 4

// run writes to file what the host sends, credits it, and closes file at the
// end. A tool that closes its stdin, or ends without having read it, fails
// nothing: the bytes are dropped and credited all the same. A nil file drops
// everything.
func (s *stdin) run(file *os.File, credit func(n int)) {
	defer close(s.done)
	var batch []byte
	taken := 0
	for {
		var last bool
		batch, last = s.next(batch)
		if file != nil {
			_, err := file.Write(batch)
			if err != nil || last {
				_ = file.Close()
				file = nil
			}
		}
		if last {
			return
		}
		if taken += len(batch); taken >= creditEvery {
			s.settle(taken)
			credit(taken)
			taken = 0
		}
	}
}

// settle takes n bytes off what is owed. It comes before the credit: a host may
// answer a credit faster than this goroutine goes on.
func (s *stdin) settle(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owed -= n
}

// next waits for bytes or for the end, and swaps what is pending for spare.
func (s *stdin) next(spare []byte) (batch []byte, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) == 0 && !s.closed {
		s.more.Wait()
	}
	batch, s.pending = s.pending, spare[:0]
	return batch, s.closed
}
