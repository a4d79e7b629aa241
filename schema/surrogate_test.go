package schema

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestLoneSurrogate(t *testing.T) {
	for in, want := range map[string]int{
		`{"a":1}`: -1, `"\ud83d\ude00"`: -1, `"\uD83D\uDE00\ud83d\ude00"`: -1, `"\\ud800"`: -1, `"\u00e9\n\\"`: -1,
		`"\ud800"`: 1, `"\udc00"`: 1, `"\ud800\ud800"`: 1, `"\ud83d\ude00\ude00"`: 13, `{"\uDFFF":1}`: 2, `"\\\ud800x"`: 3, `"\ud800\\udc00"`: 1,
	} {
		if got := LoneSurrogate([]byte(in)); got != want {
			t.Errorf("%s: %d, want %d", in, got, want)
		}
	}
}

// A text has half a character exactly when encoding/json puts another in its place.
func TestLoneSurrogateProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{`\ud83d`, `\ude00`, `\\`, `\n`, `u`, `d800`, `é`, `\u0041`})).Draw(t, "pieces")
		raw := `"` + strings.Join(pieces, "") + `"`
		var text string
		if err := json.Unmarshal([]byte(raw), &text); err != nil {
			t.Fatal(err)
		}
		if got, want := LoneSurrogate([]byte(raw)) >= 0, strings.ContainsRune(text, utf8.RuneError); got != want {
			t.Errorf("%s: %v, want %v", raw, got, want)
		}
	})
}
