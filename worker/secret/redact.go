package secret

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Redactor takes secrets out of text and bytes. It is safe for concurrent use.
// A nil *Redactor knows none and changes nothing.
//
// What it looks for are patterns of at least [MinValue] bytes; see forms for
// how they come from the values. A pattern can begin at any byte, so each byte
// is the beginning of eight, and those eight are looked up: in a small table
// that nearly always says no, then in a map that is right. Patterns that begin
// alike are few. An automaton of all patterns (Aho-Corasick) would read each
// byte once as well, and take a hundred times the memory to be made for a call.
type Redactor struct {
	mark     []byte
	patterns []string            // sorted
	starts   map[uint64][]string // patterns by their first eight bytes
	sieve    [1 << 16 / 64]uint64
	longest  int
}

// NewRedactor returns a redactor of the values, or nil when there are none.
func NewRedactor(values ...Value) *Redactor {
	patterns := map[string]struct{}{}
	for _, v := range values {
		addForms(patterns, v.text)
	}
	if len(patterns) == 0 {
		return nil
	}
	r := &Redactor{starts: make(map[uint64][]string, len(patterns))}
	for p := range patterns {
		r.patterns = append(r.patterns, p)
		r.longest = max(r.longest, len(p))
	}
	sort.Strings(r.patterns)
	for _, p := range r.patterns {
		start := binary.LittleEndian.Uint64([]byte(p[:8]))
		r.starts[start] = append(r.starts[start], p)
		h := sieveHash(start)
		r.sieve[h/64] |= 1 << (h % 64)
	}
	r.mark = markFor(r.patterns)
	return r
}

// Format prints nothing of what r knows.
func (r *Redactor) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("secret.Redactor")) }

func sieveHash(start uint64) uint64 { return start * 0x9e3779b97f4a7c15 >> 48 }

// markFor chooses what stands where a secret stood. No pattern may have a byte
// of its ends, or lie in it: a tool that knows its secret could else have the
// mark complete it. No choice is left only for values of all bytes there are.
func markFor(patterns []string) []byte {
	var used [256]bool
	for _, p := range patterns {
		for _, c := range []byte(p) {
			used[c] = true
		}
	}
	const usual = "[redacted]"
	if used['['] || used[']'] || slices.ContainsFunc(patterns, func(p string) bool { return strings.Contains(usual, p) }) {
		for _, c := range []byte("*#~_?^|+-= ") {
			if !used[c] {
				return bytes.Repeat([]byte{c}, 3)
			}
		}
	}
	return []byte(usual)
}

// candidates are the patterns that begin with the first eight bytes of b, of
// which there must be so many.
func (r *Redactor) candidates(b []byte) []string {
	start := binary.LittleEndian.Uint64(b)
	h := sieveHash(start)
	if r.sieve[h/64]&(1<<(h%64)) == 0 {
		return nil
	}
	return r.starts[start]
}

// match returns how many bytes at the beginning of b are the longest pattern
// that b begins with, or 0.
func (r *Redactor) match(b []byte) int {
	if len(b) < MinValue {
		return 0
	}
	n := 0
	for _, p := range r.candidates(b) {
		if len(p) > n && len(p) <= len(b) && string(b[:len(p)]) == p {
			n = len(p)
		}
	}
	return n
}

// Bytes returns b without the secrets: b itself when there are none in it.
func (r *Redactor) Bytes(b []byte) []byte {
	if r == nil || !r.found(b) {
		return b
	}
	s := r.Stream()
	return append(s.Write(b), s.Close()...)
}

// String is Bytes for text.
func (r *Redactor) String(s string) string {
	if r == nil {
		return s
	}
	b := []byte(s)
	if out := r.Bytes(b); len(out) != len(b) || !bytes.Equal(out, b) {
		return string(out)
	}
	return s
}

func (r *Redactor) found(b []byte) bool {
	for i := r.next(b, 0); i < len(b); i = r.next(b, i+1) {
		if r.match(b[i:]) > 0 {
			return true
		}
	}
	return false
}

// next is the first place at i or after it where a pattern may begin, or the
// length of b.
func (r *Redactor) next(b []byte, i int) int {
	for ; i+MinValue <= len(b); i++ {
		h := sieveHash(binary.LittleEndian.Uint64(b[i:]))
		if r.sieve[h/64]&(1<<(h%64)) != 0 {
			return i
		}
	}
	return len(b)
}

// Stream returns a redactor of one stream whose pieces may be cut anywhere. It is
// nil, and passes everything on, when r knows no secrets.
func (r *Redactor) Stream() *Stream {
	if r == nil {
		return nil
	}
	return &Stream{r: r}
}

// Stream redacts a stream piece by piece. What it returns, put together, is
// what [Redactor.Bytes] would return of the whole. It is for one goroutine.
//
// It keeps back the end of a piece only while that could be the beginning of a
// secret, and never more than the longest pattern: 12 bytes, where all secrets
// are of one line.
type Stream struct {
	r       *Redactor
	held    []byte
	covered int  // so many bytes of held belong to a secret that was found
	within  bool // the mark of the secret that was last was written
}

// Write takes the next piece and returns what can be passed on, which may be the
// piece itself.
func (s *Stream) Write(piece []byte) []byte {
	if s == nil {
		return piece
	}
	s.held = append(s.held, piece...)
	return s.pass(len(s.held) - s.r.tail(s.held))
}

// Close returns what was kept back. Nothing may be written after it.
func (s *Stream) Close() []byte {
	if s == nil {
		return nil
	}
	return s.pass(len(s.held))
}

// pass passes n bytes on, all of whose secrets can be seen. Secrets that overlap
// or touch have one mark.
func (s *Stream) pass(n int) []byte {
	out := make([]byte, 0, n)
	done := min(s.covered, n) // up to here all is passed on or taken out
	for i := s.r.next(s.held, 0); i < n; i = s.r.next(s.held, i+1) {
		m := s.r.match(s.held[i:])
		if m == 0 {
			continue
		}
		if i > s.covered {
			out, s.within = append(out, s.held[done:i]...), false
		}
		if !s.within {
			out, s.within = append(out, s.r.mark...), true
		}
		s.covered = max(s.covered, i+m)
		done = min(s.covered, n)
	}
	if done < n {
		out, s.within = append(out, s.held[done:n]...), false
	}
	s.held = append(s.held[:0], s.held[n:]...)
	s.covered = max(0, s.covered-n)
	return out
}

// tail returns how long the longest end of b is with which a pattern begins
// that is longer: what follows may complete it.
func (r *Redactor) tail(b []byte) int {
	for n := min(len(b), r.longest-1); n > 0; n-- {
		if r.begins(b[len(b)-n:]) {
			return n
		}
	}
	return 0
}

// begins tells whether a pattern begins with b and is longer.
func (r *Redactor) begins(b []byte) bool {
	longer := func(p string) bool { return len(p) > len(b) && p[:len(b)] == string(b) }
	if len(b) >= MinValue {
		return slices.ContainsFunc(r.candidates(b), longer)
	}
	i := sort.SearchStrings(r.patterns, string(b))
	return i < len(r.patterns) && longer(r.patterns[i])
}
