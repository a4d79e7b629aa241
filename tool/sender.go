package tool

import (
	"encoding/base64"
	"io"
	"sync"

	"github.com/toolfleet/toolfleet/agui"
)

// sender writes updates in a goroutine of its own, so that a reader that
// stalls never stalls the tool. It holds one update: the latest wins. The
// goroutine starts with the first update: most tools send none.
type sender struct {
	out  io.Writer
	wake chan struct{} // written by send, closed by close
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // guards the rest
	next    *Update
	running bool
	over    bool
}

func newSender(out io.Writer) *sender {
	return &sender{out: out, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// send puts u in the place of the update that waits, if one does.
func (s *sender) send(u Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.next = &u
	if !s.running {
		s.running = true
		go s.run()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// close writes the last update that waits and ends the goroutine. Later
// updates do nothing.
func (s *sender) close() {
	s.mu.Lock()
	s.over = true
	close(s.wake)
	running := s.running
	s.mu.Unlock()
	if running {
		<-s.done
	}
}

func (s *sender) run() {
	defer close(s.done)
	broken := false
	for range s.wake {
		s.mu.Lock()
		u := s.next
		s.next = nil
		s.mu.Unlock()
		if u == nil || broken {
			continue
		}
		broken = s.write(*u) != nil
	}
}

// write writes an update. Content that does not fit a message is left behind;
// how far the tool is always fits.
func (s *sender) write(u Update) error {
	line, err := encodeUpdate(u)
	if err != nil || len(line) > MaxMessage {
		u.Content, u.Message = nil, ""
		if line, err = encodeUpdate(u); err != nil {
			return nil // an update that is no JSON, such as NaN, is no progress
		}
	}
	_, err = s.out.Write(append(line, '\n'))
	return err
}

// plain returns the bytes of a successful result that is one part and nothing
// more, as a tool without messages would write them to stdout.
func plain(r Result) ([]byte, bool) {
	if r.IsError || len(r.Content) != 1 || len(r.Extra) > 0 {
		return nil, false
	}
	p := r.Content[0]
	switch {
	case p.ID != "" || p.Metadata != nil:
		return nil, false
	case p.Type == agui.PartText:
		return []byte(p.Text), true
	case p.Source.Type != agui.SourceData:
		return nil, false
	}
	data, err := base64.StdEncoding.DecodeString(p.Source.Value)
	return data, err == nil
}
