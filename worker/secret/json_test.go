package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestJSON(t *testing.T) {
	for _, c := range []struct{ name, secret, in, want string }{
		{"none", token, `{"a" : 1.0}`, `{"a" : 1.0}`},
		{"a string", "0123456789ab", `{"a":["x0123456789aby",1]}`, `{"a":["x[redacted]y",1]}`},
		{"a name", "0123456789ab", `{"0123456789ab":true}`, `{"[redacted]":true}`},
		{"a number", "123456789012", `[9123456789012, 12]`, `[0,12]`},
		{"escapes", `a"\b"\c"\d"\e`, `{"k":"<a\"\\b\"\\c\"\\d\"\\e>"}`, `{"k":"<[redacted]>"}`},
		{"no JSON", "0123456789ab", `{"k": 0123456789ab`, `{"k": [redacted]`},
		{"two values", "0123456789ab", `"0123456789ab" "0123456789ab"`, `"[redacted]" "[redacted]"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(redactorOf(c.secret).JSON([]byte(c.in))); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestJSONProperty: what was JSON is JSON without a secret in any of its strings,
// and what has none is untouched.
func TestJSONProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("ab\"\\é/<1")), MinValue, 30, -1).Draw(t, "secret")
		r := redactorOf(word)
		text := rapid.OneOf(rapid.Just("x"+word+"y"), rapid.Just(word[:len(word)/2]), rapid.StringN(0, 10, -1))
		doc := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			doc[text.Draw(t, "name")] = []any{text.Draw(t, "value"), 1.5, nil, map[string]any{"k": text.Draw(t, "deep")}}
		}
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		var back any
		out := r.JSON(raw)
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatalf("%s of %s: %v", out, raw, err)
		}
		if _, more := r.value(back); more {
			t.Fatalf("%s still has %q", out, word)
		}
		if _, found := r.value(doc); !found && !bytes.Equal(out, raw) {
			t.Fatalf("%s became %s", raw, out)
		}
	})
}

// TestHandler: no line of a log has a secret, wherever it stands in it.
func TestHandler(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(redactorOf(token).Handler(slog.NewJSONHandler(&out, nil))).With("with", token).WithGroup("g")
	log.Info("said "+token, "error", errors.New("bad "+token), "n", 7, "list", []string{token}, "bytes", []byte(token),
		slog.Group("inner", "deep", token), "lazy", lazy{})
	if strings.Contains(out.String(), token[:piece]) || !strings.Contains(out.String(), `"n":7`) || strings.Count(out.String(), "[redacted]") < 6 {
		t.Error(out.String())
	}
}

type lazy struct{}

func (lazy) LogValue() slog.Value { return slog.StringValue(token) }
