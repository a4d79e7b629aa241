package mcp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/toolfleet/toolfleet/tool"
)

// maxValues bounds the values of one message. The SDK decodes much of a message
// into whatever it holds, and an empty list, which takes three bytes to write,
// takes forty times that to hold.
const maxValues = 250_000

// depthOfParts is where the blocks of an answer stand in a message: in the list of
// the result of the response.
const depthOfParts = 3

// sieve passes on the lines of a server that may be messages, and ends at the
// first that is none: what an SDK sees is bounded in what it can cost, and a
// server's author reads what was wrong.
type sieve struct {
	*ear
	lines *bufio.Reader
	line  []byte // what of the last line was not passed on
}

func newSieve(e *ear) *sieve { return &sieve{ear: e, lines: bufio.NewReader(e)} }

func (s *sieve) Read(b []byte) (int, error) {
	for len(s.line) == 0 {
		line, err := s.lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) == 0 {
			if err != nil {
				return 0, err
			}
			continue
		}
		if err := check(line); err != nil {
			return 0, err
		}
		s.line = line // an err with it comes again, as io.EOF
	}
	n := copy(b, s.line)
	s.line = s.line[n:]
	return n, nil
}

// maxQuote bounds what of a line is quoted, in bytes.
const maxQuote = 100

// check says why a line cannot be a message. It need not be valid.
func check(line []byte) error {
	line = bytes.TrimSpace(line)
	if line[0] != '{' {
		return fmt.Errorf("%q", bytes.ToValidUTF8(line[:min(len(line), maxQuote)], nil))
	}
	values, parts := 0, 0
	depth := 0
	inString, escaped := false, false
	for _, c := range line {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = c == '\\', c != '"'
		case c == '"':
			inString = true
		case c == '[' || c == '{':
			depth++
			values++
		case c == ']' || c == '}':
			depth--
		case c == ',':
			values++
			if depth == depthOfParts {
				parts++
			}
		}
	}
	switch {
	case values > maxValues:
		return fmt.Errorf("one of more than %d values", maxValues)
	case parts >= tool.MaxParts:
		return fmt.Errorf("one of more than %d parts", tool.MaxParts)
	}
	return nil
}

var _ io.ReadCloser = (*sieve)(nil)
