package secret

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
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
