package agent

import (
	"io"
	"os"
	"sync"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// TestStdinAnsweredAtOnce: a host that sends more the moment it gets credit
// never breaks the window's rule. (The agent once credited first and counted
// then, and so ended with some of its tools.)
func TestStdinAnsweredAtOnce(t *testing.T) {
	for _, reads := range []bool{true, false} {
		s := newStdin()
		file, tool, err := pipeFor(reads)
		if err != nil {
			t.Fatal(err)
		}
		left := 64 * wire.StdinWindow
		send := func(n int) {
			for n = min(n, left); n > 0; {
				chunk := min(n, wire.MaxChunk)
				if err := s.add(make([]byte, chunk)); err != nil {
					t.Errorf("with %d bytes left: %v", left, err)
				}
				n, left = n-chunk, left-chunk
			}
			if left == 0 {
				s.close()
			}
		}
		send(wire.StdinWindow)
		var reader sync.WaitGroup
		reader.Go(func() { _, _ = io.Copy(io.Discard, tool) })
		s.run(file, send)
		reader.Wait()
		if left != 0 {
			t.Errorf("%d bytes are left", left)
		}
	}
}

// pipeFor returns the agent's end of a tool's stdin and the tool's, which is
// closed when the tool does not read.
func pipeFor(reads bool) (agent, tool *os.File, err error) {
	tool, agent, err = os.Pipe()
	if err == nil && !reads {
		err = tool.Close()
	}
	return agent, tool, err
}
