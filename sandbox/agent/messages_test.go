package agent

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/sandbox/wire"
	messages "github.com/toolfleet/toolfleet/tool"
)

// FuzzMessages is the whole way of fd 3: what a tool writes, in pieces as a pipe
// happens to give them, is cut into lines here and read on the other side. However
// it is cut, the lines are the same and bounded, and what is read of one can be
// shown to a client.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{"type":"update","content":[{"type":"text","text":"half way"}],"current":5,"total":10,"message":"counting"}` + "\n" +
			`{"type":"result","content":[{"type":"text","text":"done"}],"is_error":false}` + "\n",
		`{"type":"result","content":"a","extra":[{"type":"image","source":{"type":"data","value":"R0lGODlh","mimeType":"image/gif"}}]}`,
		"\n\r\n \n{\"type\":\"result\"}\n{\"type\":\"result\",\"content\":\"second\"}\njunk\n",
		`{"type":"result","content":[{"type":"hologram"},{"type":"document","source":{"type":"url","value":"file:///etc/passwd"}}]}` + "\n",
		`{"type":"result","content":"a` + "\xff" + `b","content":"c"}` + "\n",
		`{"type":"update","current":1e400,"total":-0.0,"message":"` + "\\ud800" + `"}` + "\n",
		`{"type":"result","conte`,
	} {
		f.Add([]byte(seed), uint16(7))
	}
	f.Fuzz(func(t *testing.T, stream []byte, piece uint16) {
		lines := split(t, stream, len(stream)+1)
		if diff := cmp.Diff(lines, split(t, stream, int(piece)+1)); diff != "" {
			t.Fatalf("in pieces of %d (-whole +pieces):\n%s", int(piece)+1, diff)
		}
		for _, line := range lines {
			if len(line) == 0 || len(line) > wire.MaxMessage || bytes.ContainsRune([]byte(line), '\n') {
				t.Fatalf("a line of %d bytes: %.100q", len(line), line)
			}
			if u, err := messages.DecodeUpdate([]byte(line)); err == nil {
				presentable(t, call.Result{Content: u.Content})
			}
			if r, err := messages.DecodeResult([]byte(line)); err == nil {
				presentable(t, r)
			}
		}
	})
}

// split cuts a stream into lines.
func split(t *testing.T, stream []byte, size int) (lines []string) {
	t.Helper()
	s := &splitter{send: func(line []byte) error { lines = append(lines, string(line)); return nil }}
	for len(stream) > 0 {
		n := min(size, len(stream))
		if err := s.add(bytes.Clone(stream[:n])); err != nil {
			t.Fatal(err)
		}
		stream = stream[n:]
	}
	if err := s.end(true); err != nil {
		t.Fatal(err)
	}
	return lines
}

// presentable fails unless a client can be shown r.
func presentable(t *testing.T, r call.Result) {
	t.Helper()
	for _, p := range r.Contents() {
		if err := p.Validate(); err != nil {
			t.Fatalf("part %+v: %v", p, err)
		}
	}
	if _, err := json.Marshal(r.Event("k", "c")); err != nil {
		t.Fatal(err)
	}
}
