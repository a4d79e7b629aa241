package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"pgregory.net/rapid"
)

const token = "sk-live-4f9A/x+Qé7\"Zk2~mN8vB=="

func redactorOf(values ...string) *Redactor {
	var all []Value
	for _, v := range values {
		all = append(all, Value{v})
	}
	return NewRedactor(all...)
}

// TestPain92Redacted: a secret is not in the output, whichever way a tool has
// written it, and what stood around it is.
func TestPain92Redacted(t *testing.T) {
	quoted, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]string{
		"whole":             token,
		"hex":               hex.EncodeToString([]byte(token)),
		"upper-case hex":    strings.ToUpper(hex.EncodeToString([]byte(token))),
		"query":             url.QueryEscape(token),
		"path":              url.PathEscape(token),
		"lower-case escape": "sk-live-4f9a%2fx%2bq%c3%a97%22zk2~mn8vb%3d%3d",
		"JSON":              string(quoted[1 : len(quoted)-1]),
		"ASCII JSON":        `sk-live-4f9A/x+Q\u00e97\"Zk2~mN8vB==`,
		"half":              token[:len(token)/2],
	}
	forms["lower-case escape"] = lowerEscapes(url.QueryEscape(token))
	for before := range 3 {
		for name, enc := range map[string]*base64.Encoding{"std": base64.StdEncoding, "url": base64.RawURLEncoding} {
			forms[fmt.Sprint("base64 ", name, before)] = enc.EncodeToString([]byte(strings.Repeat("x", before) + token + "yyy"))
		}
	}
	r := redactorOf(token)
	for name, form := range forms {
		got := r.String("before " + form + " after")
		if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") || !strings.Contains(got, "[redacted]") {
			t.Errorf("%s: %q", name, got)
		}
		if n := len(longestCommon(got, form)); n >= piece {
			t.Errorf("%s: %d bytes are left in %q", name, n, got)
		}
	}
}

// longestCommon is the longest string that is in both.
func longestCommon(a, b string) string {
	best := ""
	for i := range b {
		for j := i + len(best) + 1; j <= len(b) && strings.Contains(a, b[i:j]); j++ {
			best = b[i:j]
		}
	}
	return best
}

// TestExact pins what comes out, byte for byte.
func TestExact(t *testing.T) {
	key := "AAAAB3NzaC1yc2EAAAADAQABAAAB\nz9Kq: two words of it\nshort\n-----END KEY-----"
	for _, c := range []struct{ name, secret, in, want string }{
		{"none", token, "nothing here", "nothing here"},
		{"empty", token, "", ""},
		{"twice", token, token + " " + token, "[redacted] [redacted]"},
		{"touching", token, token + token, "[redacted]"},
		{"too short a piece", token, token[:piece-1] + "…", token[:piece-1] + "…"},
		{"halves the other way round", "0123456789abcdefghijklmn", "cdefghijklmn|0123456789ab", "[redacted]|[redacted]"},
		{"shortest", "12345678", "a12345678b", "a[redacted]b"},
		{"shorter", "12345678", "a1234567b", "a1234567b"},
		{"a brace of its own", "[12345678", "a[12345678b", "a***b"},
		{"the mark", "redacted", "redacted", "***"},
		{"line by line", key, "1 AAAAB3NzaC1yc2EAAAADAQABAAAB\n2 z9Kq: two words of it\n3 short\n-----END KEY-----", "1 [redacted]\n2 [redacted]\n3 short\n-----END KEY-----"},
		{"words of lines", key, "two words", "two words"},
		{"JSON", `{"client_email": "me@example.com", "n": [1, "0123456789abc"]}`, "client_email me@example.com 0123456789abc", "client_email [redacted] [redacted]"},
		{"no text", token, "\xff\x00" + token + "\xfe", "\xff\x00[redacted]\xfe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := redactorOf(c.secret).String(c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	var none *Redactor
	if none = NewRedactor(); none != nil || none.String("x") != "x" || string(none.Stream().Write([]byte("x"))) != "x" {
		t.Error("no secrets, and something is changed")
	}
}

// TestStreamProperty: however a stream is cut, what comes out is what would
// come out of the whole, has no secret in it, and is text where it was.
func TestStreamProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]string{"ab", "ab[]*", "abc\n ", "0123456789abcdef", "aé=/+\"\\"}).Draw(t, "alphabet")
		word := rapid.StringOfN(rapid.RuneFrom([]rune(alphabet)), MinValue, 40, -1)
		secrets := rapid.SliceOfN(word, 1, 3).Draw(t, "secrets")
		r := redactorOf(secrets...)
		var text strings.Builder
		for _, n := range rapid.SliceOfN(rapid.IntRange(-3, len(secrets)-1), 0, 8).Draw(t, "parts") {
			if n < 0 {
				text.WriteString(rapid.StringOfN(rapid.RuneFrom([]rune(alphabet+"xyz")), 0, 20, -1).Draw(t, "text"))
				continue
			}
			text.WriteString(rapid.SampledFrom(encodings(secrets[n])).Draw(t, "form"))
		}
		whole := []byte(text.String())
		want := r.Bytes(whole)

		var got []byte
		s := r.Stream()
		for rest := whole; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			got = append(got, s.Write(rest[:n])...)
			rest = rest[n:]
		}
		got = append(got, s.Close()...)
		if !bytes.Equal(got, want) {
			t.Fatalf("in pieces %q, whole %q", got, want)
		}
		if r == nil {
			return // all lines are too short to be looked for
		}
		for _, p := range r.patterns {
			if bytes.Contains(got, []byte(p)) {
				t.Fatalf("%q is left in %q", p, got)
			}
		}
		if len(got) > len(whole)*2+len(r.mark) {
			t.Fatalf("%d bytes became %d", len(whole), len(got))
		}
		if !utf8.Valid(got) {
			t.Fatalf("no text: %q of %q", got, whole)
		}
	})
}

// TestReader: the same for who reads, to the end and to an error.
func TestReader(t *testing.T) {
	failed := errors.New("failed")
	for _, end := range []error{io.EOF, failed} {
		text := strings.Repeat("a line with "+token+" in it\n", 2000) + token[:8]
		from := io.MultiReader(iotest.HalfReader(strings.NewReader(text)), iotest.ErrReader(end))
		got, err := io.ReadAll(iotest.OneByteReader(redactorOf(token).Reader(from)))
		if want := redactorOf(token).String(text); string(got) != want || errors.Is(end, failed) != errors.Is(err, failed) {
			t.Errorf("%v: %d bytes of %d, %v", end, len(got), len(want), err)
		}
	}
}

// TestKeepsBackLittle: only what may be the beginning of a secret waits.
func TestKeepsBackLittle(t *testing.T) {
	s := redactorOf(token).Stream()
	for _, c := range []struct{ in, out string }{
		{"50%\n", "50%\n"}, {"sk-", ""}, {"!", "sk-!"}, {"sk-live-", ""}, {"4f9A/x+Q", "[redacted]"}, {"!", "!"},
	} {
		if got := string(s.Write([]byte(c.in))); got != c.out {
			t.Errorf("after %q: %q, want %q", c.in, got, c.out)
		}
	}
	if got := s.Close(); len(got) != 0 {
		t.Errorf("at the end: %q", got)
	}
}

// TestNothingIsPrinted: neither a value nor a redactor can be printed by
// accident.
func TestNothingIsPrinted(t *testing.T) {
	v := Value{token}
	text, err := json.Marshal(map[string]any{"v": v})
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprintf("%v %+v %#v %s %q %x %d %v %+v", v, v, v, v, v, v, v, NewRedactor(v), []Value{v}) + string(text)
	if strings.Contains(all, "sk-") || strings.Contains(all, hex.EncodeToString([]byte("sk-"))) || strings.Contains(all, "115 107") {
		t.Error(all)
	}
}

func BenchmarkRedact(b *testing.B) {
	line := []byte("2026-01-02T03:04:05Z INFO request served path=/v1/things status=200 bytes=4096 took=12ms\n")
	text := bytes.Repeat(line, 1<<20/len(line))
	r := redactorOf(token, "0123456789abcdef0123456789abcdef01234567")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		_ = r.Bytes(text)
	}
}

func BenchmarkNewRedactor(b *testing.B) {
	v := Value{"0123456789abcdef0123456789abcdef01234567"}
	b.ReportAllocs()
	for b.Loop() {
		_ = NewRedactor(v)
	}
}
