package main

import (
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// standard is the process's own terminal.
func standard() *terminal {
	t := &terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr, raw: !term.IsTerminal(int(os.Stdout.Fd()))}
	if fd := int(os.Stderr.Fd()); term.IsTerminal(fd) && os.Getenv("TERM") != "dumb" {
		t.width = 80
		if w, _, err := term.GetSize(fd); err == nil && w > 0 {
			t.width = w
		}
	}
	return t
}

// columns is how wide a screen is: as the terminal, and 80 where there is none,
// so that a file looks the same wherever it was written.
func (t *terminal) columns() int {
	if t.raw || t.width == 0 {
		return 80
	}
	return max(t.width, 40)
}

// harmless replaces what could steer a terminal. A tool's output is not to be
// trusted with somebody's screen, title bar or clipboard. Line feeds and tabs
// stay.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control):
			return '�'
		}
		return r
	}, s)
}

// oneLine makes s fit into a line of its own.
func oneLine(s string) string { return strings.Join(strings.Fields(harmless(s)), " ") }

// clip cuts s to at most n columns, taking a rune for a column.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n || n < 1 {
		return s
	}
	return string(r[:n-1]) + "…"
}

// plural is n of something, in words.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// size is n bytes for people.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
