package agui

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// split finds the members of a JSON object and decodes none of them: the
// values are pieces of data. A name that stands twice has its last value. It
// returns nil for what is no object. data is valid JSON, or the answer is worth
// nothing. An event is mostly read this way, since encoding/json would take it
// apart by reflection, twice.
func split(data []byte) map[string]json.RawMessage {
	s := splitter{data: data}
	if !s.skip('{') {
		return nil
	}
	members := map[string]json.RawMessage{}
	for !s.skip('}') {
		name, ok := unquote(s.value())
		if !ok || !s.skip(':') {
			return nil
		}
		value := s.value()
		if len(value) == 0 {
			return nil
		}
		members[name] = value
		s.skip(',')
	}
	return members
}

// splitter reads JSON that is valid.
type splitter struct {
	data []byte
	at   int
}

// skip passes space and then c, if it is next.
func (s *splitter) skip(c byte) bool {
	for s.at < len(s.data) && isSpace(s.data[s.at]) {
		s.at++
	}
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// value passes space and returns the next value.
func (s *splitter) value() []byte {
	for s.at < len(s.data) && isSpace(s.data[s.at]) {
		s.at++
	}
	begin, depth := s.at, 0
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case '"':
			s.text()
			if depth == 0 {
				return s.data[begin:s.at]
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return s.data[begin:s.at] // of a number or a word
			}
			if depth--; depth == 0 {
				s.at++
				return s.data[begin:s.at]
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return s.data[begin:s.at]
			}
		}
		s.at++
	}
	return s.data[begin:]
}

// text passes a string.
func (s *splitter) text() {
	for s.at++; s.at < len(s.data); s.at++ {
		switch s.data[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			return
		}
	}
	s.at = len(s.data)
}

// unquote reads a string; false for anything else.
func unquote(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner), true
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return "", false
	}
	return text, true
}
