package worker

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/sandbox"
)

// TestPain40SplitRunes: however the pieces of stderr are cut, no half of a rune
// is ever shown, and nothing whole is missing in the end.
func TestPain40SplitRunes(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom([]rune("aé€😀👩‍🚀\n")))
	rapid.Check(t, func(t *rapid.T) {
		all := text.Draw(t, "text")
		v := &voice{wake: make(chan struct{}, 1)}
		for rest := all; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			v.stderr([]byte(rest[:n]))
			rest = rest[n:]
			v.read()
			if !utf8.ValidString(v.next.Output) || len(v.next.Output) > tailMax {
				t.Fatalf("%d bytes of output: %q", len(v.next.Output), v.next.Output)
			}
		}
		if len(all) <= tailMax && v.next.Output != all {
			t.Fatalf("%q became %q", all, v.next.Output)
		}
	})
}

// TestPain40CutOutput: an output that was cut anywhere stays text, and loses no
// more than the rune that was cut.
func TestPain40CutOutput(t *testing.T) {
	const all = "aé€😀👩‍🚀"
	for cut := 1; cut <= len(all); cut++ {
		parts := partial(sandbox.Exit{Stdout: []byte(all[:cut])})
		if len(parts) != 1 || parts[0].Type != agui.PartText || !strings.HasPrefix(all, parts[0].Text) || cut-len(parts[0].Text) >= utf8.UTFMax {
			t.Errorf("cut at %d: %+v", cut, parts)
		}
	}
	if parts := partial(sandbox.Exit{Stdout: []byte("\x89PNG\r\n\x1a\n\xff")}); len(parts) != 1 || parts[0].Source == nil {
		t.Errorf("binary became %+v", parts)
	}
}
