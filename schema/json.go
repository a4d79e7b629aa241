package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of [CheckJSON] that no caller has a reason to choose.
const (
	// MaxDepth is the deepest nesting of objects and lists.
	MaxDepth = 64
	// maxNumber is the longest number, in bytes, and maxExponent its largest
	// exponent. A validator computes with exact fractions, where the eight
	// bytes 1e999999 cost half a megabyte and 20 ms each; float64 ends at 308.
	maxNumber   = 512
	maxExponent = 308
)

// CheckJSON says what makes raw unfit to be decoded at all: longer than
// maxBytes, not UTF-8, not one JSON value, nested deeper than [MaxDepth], an
// object that names a member twice (decoders disagree on which one counts, so
// what was checked might not be what runs), a number out of any sensible
// range. It returns nil for sound JSON.
func CheckJSON(raw []byte, maxBytes int) []Problem {
	if len(raw) > maxBytes {
		return []Problem{{Message: fmt.Sprintf("is %d bytes long, and at most %d are allowed", len(raw), maxBytes)}}
	}
	if !utf8.Valid(raw) {
		return []Problem{{Message: "is not UTF-8"}}
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return []Problem{{Message: "is empty and not JSON; an object without members is {}"}}
	}
	var whole json.RawMessage
	err := json.Unmarshal(raw, &whole)
	if err == nil {
		return Tidy(walk(raw))
	}
	// At 10,000 levels encoding/json says that it is no JSON.
	problems := walk(raw)
	if at := slices.IndexFunc(problems, func(p Problem) bool { return p.Message == tooDeep }); at >= 0 {
		return problems[at : at+1]
	}
	return []Problem{{Message: syntaxMessage(err)}}
}

var tooDeep = fmt.Sprintf("is nested deeper than %d levels", MaxDepth)

// syntaxMessage tells where JSON breaks off.
func syntaxMessage(err error) string {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("is not JSON: %s (at byte %d)", syntax.Error(), syntax.Offset)
	}
	return "is not JSON"
}

// level is one open object or list of a walk.
type level struct {
	// keys are the members met so far; nil for a list.
	keys map[string]bool
	// name is the member or index that the walk is at.
	name string
	// inValue says that the next token of an object is a value, not a key.
	inValue bool
	index   int
}

// walk reads raw, token by token and as far as it is JSON. It keeps no value, so
// that it costs no more than the text.
func walk(raw []byte) []Problem {
	var (
		problems []Problem
		open     []level
		dec      = json.NewDecoder(bytes.NewReader(raw))
	)
	dec.UseNumber()
	fault := func(message string) {
		tokens := make([]string, len(open))
		for i, l := range open {
			tokens[i] = l.name
		}
		problems = append(problems, At(tokens, message))
	}
	for {
		token, err := dec.Token()
		if err != nil {
			return problems // the end of what is valid
		}
		if len(open) > 0 {
			top := &open[len(open)-1]
			if key, ok := token.(string); ok && top.keys != nil && !top.inValue {
				top.name, top.inValue = key, true
				if top.keys[key] {
					fault("is given twice")
				}
				top.keys[key] = true
				continue
			}
		}
		switch token := token.(type) {
		case json.Delim:
			if token == '}' || token == ']' {
				open = open[:len(open)-1]
				break
			}
			beginValue(open)
			if len(open) == MaxDepth {
				fault(tooDeep)
				return problems
			}
			next := level{index: -1}
			if token == '{' {
				next.keys = map[string]bool{}
			}
			open = append(open, next)
		case json.Number:
			beginValue(open)
			if !sensible(token.String()) {
				fault("is a number out of range")
			}
		default:
			beginValue(open)
		}
	}
}

// beginValue moves the innermost open level on by one value.
func beginValue(open []level) {
	if len(open) == 0 {
		return
	}
	top := &open[len(open)-1]
	top.inValue = false
	if top.keys == nil {
		top.index++
		top.name = strconv.Itoa(top.index)
	}
}

// sensible reports whether exact arithmetic on the number n stays cheap.
func sensible(n string) bool {
	if len(n) > maxNumber {
		return false
	}
	_, exponent, found := strings.Cut(strings.ToLower(n), "e")
	if !found {
		return true
	}
	e, err := strconv.Atoi(exponent)
	return err == nil && e >= -maxExponent && e <= maxExponent
}
