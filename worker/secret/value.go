package secret

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Bounds of a value, in bytes.
const (
	// MinValue is the shortest. What is shorter can be guessed, and to take it
	// out of a tool's output would leave holes in ordinary words.
	MinValue = 8
	// MaxValue is the longest: keys and certificates, not data.
	MaxValue = 32 << 10
)

// Value is the value of a secret. It prints as "[secret]", whichever way; what
// hands it on asks for [Value.Reveal].
type Value struct{ text string }

// Reveal returns the value itself.
func (v Value) Reveal() string { return v.text }

// Format implements [fmt.Formatter].
func (v Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[secret]")) }

// MarshalText implements [encoding.TextMarshaler].
func (v Value) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }

// newValue judges what was read. One newline at the end is not part of a value:
// echo and editors put it there, and no key ends with one.
func newValue(raw []byte) (Value, error) {
	raw = bytes.TrimSuffix(raw, []byte("\n"))
	raw = bytes.TrimSuffix(raw, []byte("\r"))
	switch {
	case len(raw) == 0:
		return Value{}, errors.New("is empty")
	case len(raw) < MinValue:
		return Value{}, fmt.Errorf("is shorter than %d bytes", MinValue)
	case len(raw) > MaxValue:
		return Value{}, fmt.Errorf("is longer than %d bytes", MaxValue)
	case !utf8.Valid(raw) || bytes.ContainsRune(raw, 0):
		return Value{}, errors.New("is not text; keep bytes in base64")
	}
	return Value{string(raw)}, nil
}
