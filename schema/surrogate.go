package schema

import (
	"bytes"
	"strconv"
	"unicode/utf16"
)

// LoneSurrogate returns where in raw, which must be valid JSON, an escape stands
// that is half a character ("\ud800" without its other half), or -1. JSON's grammar
// allows it, and readers make different things of it: Go another character, Python
// a text that it cannot print, JavaScript one that it cannot send. So what is
// handed on as it was written is refused, while of a tool's own words a character
// may be lost.
func LoneSurrogate(raw []byte) int {
	for at := 0; ; {
		next := bytes.IndexByte(raw[at:], '\\')
		if next < 0 {
			return -1
		}
		at += next
		r := escaped(raw[at:])
		switch {
		case !utf16.IsSurrogate(r):
			at += 2 // also over an escaped backslash
		case utf16.DecodeRune(r, escaped(raw[at+6:])) == '\uFFFD':
			return at
		default:
			at += 12
		}
	}
}

// escaped is the character of the \u escape that b begins with, or 0.
func escaped(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
