package mcp

import (
	"bytes"
	"io"
	"sync"
)

// stdio is the client's end of the server's stdin and stdout. What the server
// says is held until it is read: the sandbox may not be kept waiting, and its
// output limit bounds what comes.
type stdio struct {
	input   chan []byte   // to the server; closed by hangUp
	closed  chan struct{} // nothing more is written
	once    sync.Once
	writing sync.Mutex // held by a Write, so that input is closed between two

	mu    sync.Mutex // guards the fields below
	more  *sync.Cond
	said  bytes.Buffer
	ended bool // nothing more is said
}

func newStdio() *stdio {
	s := &stdio{input: make(chan []byte), closed: make(chan struct{})}
	s.more = sync.NewCond(&s.mu)
	return s
}

// hear takes a piece of the server's stdout.
func (s *stdio) hear(piece []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said.Write(piece)
	s.more.Broadcast()
}

// Write sends b to the server. It waits for as long as the server does not read.
func (s *stdio) Write(b []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	select {
	case <-s.closed:
		return 0, io.ErrClosedPipe
	default:
	}
	select {
	case s.input <- bytes.Clone(b):
		return len(b), nil
	case <-s.closed:
		return 0, io.ErrClosedPipe
	}
}

// hangUp ends the server's stdin.
func (s *stdio) hangUp() {
	s.once.Do(func() {
		close(s.closed)
		s.writing.Lock()
		defer s.writing.Unlock()
		close(s.input)
	})
}

// end notes that the server has ended. What it said before can still be read.
func (s *stdio) end() {
	s.hangUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.more.Broadcast()
}

// ear reads what the server says; its Close ends its own Read and takes nothing
// from the next ear.
type ear struct {
	*stdio
	deaf bool // guarded by mu
}

func (e *ear) Read(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.deaf && !e.ended && e.said.Len() == 0 {
		e.more.Wait()
	}
	if e.deaf {
		return 0, io.EOF
	}
	return e.said.Read(b) // io.EOF when there is nothing left
}

// Close ends Read.
func (e *ear) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = true
	e.more.Broadcast()
	return nil
}

// mouth is the writer's half of a stdio. Its Close is that of one session; the
// server's stdin ends with hangUp.
type mouth struct{ *stdio }

// Close does nothing.
func (mouth) Close() error { return nil }
