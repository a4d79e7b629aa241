package httpapi_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
)

// mirror is a door that tells what reached it.
type mirror struct{}

func (mirror) Routes(mux *http.ServeMux) {
	mux.HandleFunc("/agui/mirror", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c := dispatch.CallerOf(r.Context())
		_, _ = io.WriteString(w, c.Tenant+" "+string(body)+" "+c.BlobURL(blob.ID{Tenant: c.Tenant, Key: call.MakeKey("a", "b", "c", "d"), N: 1}))
	})
}

const app = "https://app.example"

func withDoor(origins ...string) func(*httpapi.Config) {
	return func(c *httpapi.Config) { c.Doors, c.Origins = []httpapi.Door{mirror{}}, origins }
}

func TestDoorsShareTheGuard(t *testing.T) {
	d := open(t, dispatchtest.New(t), withDoor(), withTokens(t, "acme "+acme))
	d.wantProblem(d.do("POST", "/agui/mirror", "{}"), http.StatusUnauthorized)
	a := d.do("POST", "/agui/mirror", `{"x":1}`, "Authorization: Bearer "+acme)
	if a.Status != 200 || !strings.HasPrefix(a.Body, `acme {"x":1} `+d.server.URL()+"/v1/calls/") || !strings.Contains(a.Body, "signature=") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	d.wantProblem(d.do("POST", "/agui/mirror", "x", "Authorization: Bearer "+acme, "Content-Type: text/plain"), http.StatusUnsupportedMediaType)
	d.wantProblem(d.do("POST", "/agui/nowhere", "{}", "Authorization: Bearer "+acme), http.StatusNotFound)
}

// Without origins a page of another origin is as far away as ever.
func TestCORSIsOffByDefault(t *testing.T) {
	d := open(t, dispatchtest.New(t), withDoor())
	d.wantProblem(d.do("POST", "/agui/mirror", "{}", "Origin: "+app), http.StatusForbidden)
	a := d.do("OPTIONS", "/agui/mirror", "", "Origin: "+app, "Access-Control-Request-Method: POST")
	if d.wantProblem(a, http.StatusForbidden); a.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%v", a.Header)
	}
}

func TestCORSOfConfiguredOrigins(t *testing.T) {
	const blob = "/v1/calls/aaaaaaaaaaaaaaaaaaaaaaaaaa/blobs/1"
	for name, tokens := range map[string]bool{"loopback": false, "tokens": true} {
		changes := []func(*httpapi.Config){withDoor("http://localhost:3000", app)}
		authorization := "X: y"
		if tokens {
			changes = append(changes, withTokens(t, "acme "+acme))
			authorization = "Authorization: Bearer " + acme
		}
		d := open(t, dispatchtest.New(t), changes...)
		for _, path := range []string{"/agui/mirror", "/agui/threads/t/runs/r", blob} {
			a := d.do("OPTIONS", path, "", "Origin: "+app, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type", "Sec-Fetch-Site: cross-site")
			h := a.Header
			if a.Status != http.StatusNoContent || h.Get("Access-Control-Allow-Origin") != app || h.Get("Vary") != "Origin" || h.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s %s: %d %v", name, path, a.Status, h)
			}
			for _, want := range []string{"Authorization", "Content-Type"} {
				if !strings.Contains(h.Get("Access-Control-Allow-Headers"), want) {
					t.Errorf("%s: %v", name, h)
				}
			}
		}
		a := d.do("POST", "/agui/mirror", "{}", "Origin: "+app, "Sec-Fetch-Site: cross-site", authorization)
		if a.Status != 200 || a.Header.Get("Access-Control-Allow-Origin") != app {
			t.Errorf("%s: %d %v %s", name, a.Status, a.Header, a.Body)
		}
		// An answer that refuses can be read too.
		if a := d.do("GET", blob, "", "Origin: "+app, authorization); a.Status != 404 || a.Header.Get("Access-Control-Allow-Origin") != app {
			t.Errorf("%s: %d %v", name, a.Status, a.Header)
		}
		for what, header := range map[string][]string{
			"another origin":      {"Origin: https://evil.example"},
			"a longer one":        {"Origin: https://app.example.evil.example"},
			"another scheme":      {"Origin: http://app.example"},
			"a sandboxed page":    {"Origin: null"},
			"no origin, but site": {"Sec-Fetch-Site: cross-site"},
		} {
			a := d.do("POST", "/agui/mirror", "{}", append(header, authorization)...)
			if a.Header.Get("Access-Control-Allow-Origin") != "" || !tokens && a.Status != http.StatusForbidden {
				t.Errorf("%s, %s: %d %v", name, what, a.Status, a.Header)
			}
			a = d.do("OPTIONS", "/agui/mirror", "", append(header, "Access-Control-Request-Method: POST")...)
			if a.Status < 400 || a.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s, %s: preflight %d %v", name, what, a.Status, a.Header)
			}
		}
		// The native door is no path for pages, and a rebound name no origin.
		if a := d.do("GET", "/v1/tools", "", "Origin: "+app, authorization); a.Header.Get("Access-Control-Allow-Origin") != "" || !tokens && a.Status != http.StatusForbidden {
			t.Errorf("%s: %d %v", name, a.Status, a.Header)
		}
		if !tokens {
			d.wantProblem(d.do("POST", "/agui/mirror", "{}", "Origin: "+app, "Host: evil.example"), http.StatusForbidden)
		}
	}
}

func TestOriginsAreChecked(t *testing.T) {
	f := dispatchtest.New(t)
	for _, origin := range []string{"*", "null", "app.example", "https://app.example/", "https://App.example", "https://u@app.example", "ftp://app.example", "https://app.example?x", ""} {
		s, err := httpapi.New(httpapi.Config{Addr: "127.0.0.1:0", Dispatcher: f.Dispatcher, Tools: f.Catalog, Logger: slog.New(slog.DiscardHandler), Origins: []string{origin}})
		if err == nil {
			t.Errorf("%q was taken", origin)
			_ = s.Close()
		}
	}
}
