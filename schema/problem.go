package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds on what is said about one text. A model needs the faults, not an essay.
const (
	// MaxProblems is the largest number of problems that are listed.
	MaxProblems = 20
	// maxMessage is the longest message and the longest path, in bytes.
	maxMessage = 300
)

// Problem is one fault of a JSON text.
type Problem struct {
	// Path is a JSON pointer (RFC 6901) to the faulty value; "" is the whole.
	Path string
	// Message says what is wrong, in words for a model and for people.
	Message string
}

// At is the problem of the value at the end of tokens. It is clipped
// here and not when the list is done: under one long name there may be a fault
// for every other byte of the text, and each path would hold the name.
func At(tokens []string, message string) Problem {
	return Problem{Clip(pointer(tokens)), Clip(message)}
}

// String is "path: message", and the message alone for the whole text.
func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

// Tidy sorts problems by path and message, drops doubles, and cuts the list
// to [MaxProblems], saying how many more there were.
func Tidy(problems []Problem) []Problem {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	problems = slices.Compact(problems)
	if more := len(problems) - (MaxProblems - 1); more > 1 {
		problems = append(problems[:MaxProblems-1], Problem{Message: fmt.Sprintf("and %d more problems", more)})
	}
	return problems
}

// Clip bounds what is said to 300 bytes, without splitting a rune.
func Clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer makes a JSON pointer of reference tokens. What is longer than can be
// said is left out where it is, for [Clip] to cut.
func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		if b.Len() > maxMessage {
			break
		}
		b.WriteByte('/')
		b.WriteString(pointerEscapes.Replace(t[:min(len(t), maxMessage+utf8.UTFMax)]))
	}
	return b.String()
}
