package catalog

import (
	"fmt"
	"strings"
)

// Problem is one fault of a tool's declaration.
type Problem struct {
	// File is where the declaration stands; empty when it came from code.
	File string
	// Line is in File, from 1; 0 when it is not known.
	Line int
	// Field is the faulty member, such as "limits.memory"; "" is the whole.
	Field string
	// Message says what was expected.
	Message string
}

// String is "file:line: field: message", without the parts that are not known.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems are all the faults that were found, as one error. Its text has one
// fault a line.
type Problems []Problem

// Error implements error.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}
