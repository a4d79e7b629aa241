package catalog

import (
	"testing"
)

func TestParseAllowed(t *testing.T) {
	for text, want := range map[string]string{
		"api.example.com:443":    "api.example.com",
		"API.Example.COM.:443":   "api.example.com",
		"bücher.example:443":     "xn--bcher-kva.example",
		"*.example.org:443":      ".example.org",
		"db:5432":                "db",
		"localhost:80":           "",
		"*.localhost:80":         "",
		"_x.example.org:1":       "_x.example.org",
		"203.0.113.0/24:5432":    "203.0.113.0/24",
		"203.0.113.7:443":        "203.0.113.7/32",
		"[2001:db8::/32]:443":    "2001:db8::/32",
		"[2001:db8::1]:65535":    "2001:db8::1/128",
		"0.0.0.0/0:443":          "0.0.0.0/0",
		"api.example.com":        "",
		"api.example.com:0":      "",
		"api.example.com:65536":  "",
		"api.example.com:https":  "",
		"https://example.com:1":  "",
		"*:443":                  "",
		"*.org:443":              "",
		"a.*.example.org:443":    "",
		"2130706433:80":          "",
		"0x7f000001:80":          "",
		"0177.0.0.1:80":          "",
		"127.1:80":               "",
		"::1:80":                 "",
		"2001:db8::1:80":         "",
		"[203.0.113.7]:80":       "",
		"[::ffff:127.0.0.1]:80":  "",
		"[fe80::1%eth0]:80":      "",
		"203.0.113.9/24:80":      "",
		"exa mple.com:80":        "",
		"-a.example.com:80":      "",
		"a..example.com:80":      "",
		":80":                    "",
		"":                       "",
		"user@example.com:443":   "",
		"example.com/path:443":   "",
		"example.com\x00.org:80": "",
	} {
		a, err := ParseAllowed(text)
		got := a.Name + a.Suffix
		if a.Prefix.IsValid() {
			got = a.Prefix.String()
		}
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%q is read as %q, want %q (%v)", text, got, want, err)
		}
	}
}

func FuzzParseAllowed(f *testing.F) {
	for _, s := range []string{"api.example.com:443", "*.example.org:443", "203.0.113.0/24:5432", "[2001:db8::1]:1", "0x7f.1:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAllowed(s)
		if err != nil {
			return
		}
		kinds := 0
		for _, set := range []bool{a.Name != "", a.Suffix != "", a.Prefix.IsValid()} {
			if set {
				kinds++
			}
		}
		if kinds != 1 || a.Port == 0 {
			t.Errorf("%q is read as %+v", s, a)
		}
		if a.Name != "" {
			if again, err := NormalName(a.Name); err != nil || again != a.Name {
				t.Errorf("%q is normalised to %q, and that to %q, %v", s, a.Name, again, err)
			}
		}
	})
}
