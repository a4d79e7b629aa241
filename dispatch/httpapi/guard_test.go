package httpapi_test

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
)

const (
	acme  = "acme-token-0123456789"
	other = "other-token-0123456789"
)

// withTokens writes a token file.
func withTokens(t *testing.T, lines ...string) func(*httpapi.Config) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(name, []byte("# tenants\n\n"+strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *httpapi.Config) { c.TokenFile = name }
}

// A web page in a browser on this machine must not run tools: not by a form,
// not by a fetch, not by a name that it made DNS resolve to this machine.
func TestLoopbackAnswersNoWebPage(t *testing.T) {
	d := open(t, fleet(t))
	self := strings.TrimPrefix(d.server.URL(), "http://")
	_, port, _ := strings.Cut(self, ":")
	const body = `{"tool":"echo","arguments":{"text":"x"}}`
	for name, test := range map[string]struct {
		header []string
		status int
	}{
		"a program":                 {nil, 200},
		"localhost":                 {[]string{"Host: localhost:" + port}, 200},
		"localhost, any port":       {[]string{"Host: LOCALHOST:1"}, 200},
		"ipv6":                      {[]string{"Host: [::1]:" + port}, 200},
		"no port":                   {[]string{"Host: 127.0.0.1"}, 200},
		"its own page":              {[]string{"Origin: " + d.server.URL(), "Sec-Fetch-Site: same-origin"}, 200},
		"a name that was rebound":   {[]string{"Host: evil.example:" + port}, 403},
		"a name that looks local":   {[]string{"Host: localhost.evil.example"}, 403},
		"a name that begins local":  {[]string{"Host: 127.0.0.1.evil.example"}, 403},
		"another address":           {[]string{"Host: 10.0.0.1"}, 403},
		"another origin":            {[]string{"Origin: https://evil.example"}, 403},
		"another port is another":   {[]string{"Origin: http://localhost:3000", "Host: localhost:" + port}, 403},
		"a sandboxed page":          {[]string{"Origin: null"}, 403},
		"an https page":             {[]string{"Origin: https://" + self}, 403},
		"without origin, cross":     {[]string{"Sec-Fetch-Site: cross-site"}, 403},
		"without origin, same site": {[]string{"Sec-Fetch-Site: same-site"}, 403},
	} {
		a := d.do("POST", "/v1/calls", body, test.header...)
		if a.Status != test.status {
			t.Errorf("%s: %d, want %d: %s", name, a.Status, test.status, a.Body)
		}
		if test.status == 403 {
			d.wantProblem(a, 403)
			d.wantProblem(d.do("GET", "/v1/tools", "", test.header...), 403)
			d.wantProblem(d.do("GET", "/openapi.json", "", test.header...), 403)
		}
		if got := d.do("GET", "/healthz", "", test.header...); got.Status != 200 {
			t.Errorf("%s: health %d", name, got.Status)
		}
	}
}

func TestTokensDecideTheTenant(t *testing.T) {
	d := open(t, fleet(t), withTokens(t, "acme "+acme, "other "+other))
	const body = `{"tool":"echo","arguments":{"text":"x"}}`
	for name, header := range map[string]string{
		"none":       "X: y",
		"wrong":      "Authorization: Bearer acme-token-0123456780",
		"empty":      "Authorization: Bearer ",
		"basic":      "Authorization: Basic " + acme,
		"no scheme":  "Authorization: " + acme,
		"the tenant": "Authorization: Bearer acme",
	} {
		for _, path := range []string{"/v1/calls", "/v1/tools", "/openapi.json", "/metrics", "/nowhere", "/"} {
			a := d.do("GET", path, "", header)
			if d.wantProblem(a, http.StatusUnauthorized); !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s %s: no challenge", name, path)
			}
		}
		d.wantProblem(d.do("POST", "/v1/calls", body, header), http.StatusUnauthorized)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := d.do("GET", path, ""); a.Status != 200 {
			t.Errorf("%s: %d", path, a.Status)
		}
	}
	mine := d.call(200, "/v1/calls", body, "Authorization: bearer "+acme, "Idempotency-Key: k")
	theirs := d.call(200, "/v1/calls", body, "Authorization: Bearer "+other, "Idempotency-Key: k")
	if mine.ID == theirs.ID {
		t.Error("two tenants share a call")
	}
	for _, what := range []string{"GET /v1/calls/" + mine.ID, "DELETE /v1/calls/" + mine.ID, "GET /v1/calls/" + mine.ID + "/events", "GET /v1/calls/" + mine.ID + "/blobs/0"} {
		method, path, _ := strings.Cut(what, " ")
		d.wantProblem(d.do(method, path, "", "Authorization: Bearer "+other), http.StatusNotFound)
	}
	if a := d.do("GET", "/v1/calls", "", "Authorization: Bearer "+other); strings.Contains(a.Body, mine.ID) || !strings.Contains(a.Body, theirs.ID) {
		t.Errorf("the other tenant's list: %s", a.Body)
	}
	// With a token no header of a page says anything: a page has none.
	if a := d.do("GET", "/v1/tools", "", "Authorization: Bearer "+acme, "Host: tools.example", "Origin: https://app.example"); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestBeyondLoopbackNeedsTokens(t *testing.T) {
	f := dispatchtest.New(t)
	config := func(addr string) httpapi.Config {
		return httpapi.Config{Addr: addr, Dispatcher: f.Dispatcher, Tools: f.Catalog, Logger: slog.New(slog.DiscardHandler)}
	}
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		_, err := httpapi.New(config(addr))
		if err == nil || !strings.Contains(err.Error(), "token file") {
			t.Errorf("%s: %v", addr, err)
		}
	}
	c := config("0.0.0.0:0")
	withTokens(t, "acme "+acme)(&c)
	s, err := httpapi.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	_, err := httpapi.New(httpapi.Config{Addr: "nowhere", PublicURL: "ftp://x", SigningKey: []byte("short"), Drain: -1})
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{"address", "public url", "signing key", "negative", "required"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v says nothing of %q", err, want)
		}
	}
}

func TestReadTokens(t *testing.T) {
	for name, test := range map[string]struct{ text, says string }{
		"empty":         {"# nothing\n\n", "no token"},
		"one field":     {"acme\n", "line 1"},
		"three fields":  {"acme " + acme + " x\n", "line 1"},
		"bad tenant":    {"\nAcme " + acme + "\n", "line 2"},
		"short token":   {"acme short\n", "shorter"},
		"given twice":   {"acme " + acme + "\nother " + acme + "\n", "line 2"},
		"a line for ev": {"acme " + strings.Repeat("x", 70<<10), "too long"},
	} {
		_, err := httpapi.ReadTokens(strings.NewReader(test.text))
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v says nothing of %q", name, err, test.says)
		}
		if err != nil && strings.Contains(err.Error(), acme) {
			t.Errorf("%s: the error holds the token: %v", name, err)
		}
	}
	tokens, err := httpapi.ReadTokens(strings.NewReader("  acme\t" + acme + "  \n#x\nacme second-0123456789\nother " + other))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{acme: "acme", "second-0123456789": "acme", other: "other", "": "", acme + " ": "", acme[1:]: ""} {
		if got, ok := tokens.Tenant(token); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", token, got, ok)
		}
	}
}
