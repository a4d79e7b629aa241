package httpapi_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
)

const page = "<script>alert(1)</script> and more"

// draw answers with a blob that would be a web page.
func draw(ctx context.Context, r *dispatchtest.Running) call.Result {
	ref := r.Blob(ctx, 1, "text/html", []byte(page))
	return call.Result{Content: []agui.Part{agui.Media(agui.PartDocument, agui.Source{Type: agui.SourceURL, Value: ref, MimeType: "text/html"})}}
}

// drawn makes a call whose result holds a blob and returns the path of its
// signed URL.
func drawn(t *testing.T, d *door, header ...string) string {
	t.Helper()
	got := d.call(200, "/v1/calls", `{"tool":"draw","arguments":{"text":"x"}}`, header...)
	path, ok := strings.CutPrefix(got.Result.Content[0].Source.Value, d.server.URL())
	if !ok {
		t.Fatalf("%q is not on %s", got.Result.Content[0].Source.Value, d.server.URL())
	}
	return path
}

func drawFleet(t *testing.T) *dispatchtest.Fleet {
	t.Helper()
	f := dispatchtest.New(t, dispatchtest.Spec("draw", nil))
	f.Work(t, map[string]dispatchtest.Tool{"draw": draw})
	return f
}

func TestBlobIsServedSafely(t *testing.T) {
	d := open(t, drawFleet(t))
	path := drawn(t, d)
	a := d.do("GET", path, "", "Origin: https://elsewhere.example", "Sec-Fetch-Site: cross-site")
	if a.Status != 200 || a.Body != page {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	etag := fmt.Sprintf(`"sha256:%x"`, sha256.Sum256([]byte(page)))
	for name, want := range map[string]string{
		"Content-Type":                "text/html",
		"X-Content-Type-Options":      "nosniff",
		"Etag":                        etag,
		"Access-Control-Allow-Origin": "*",
		"Accept-Ranges":               "bytes",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := a.Header.Get("Content-Disposition"); !strings.HasPrefix(got, "attachment") {
		t.Errorf("disposition %q", got)
	}
	if got := a.Header.Get("Content-Security-Policy"); !strings.Contains(got, "sandbox") || !strings.Contains(got, "default-src 'none'") {
		t.Errorf("policy %q", got)
	}
	for name, test := range map[string]struct {
		header, body string
		status       int
	}{
		"range":          {"Range: bytes=1-6", page[1:7], http.StatusPartialContent},
		"tail":           {"Range: bytes=-4", "more", http.StatusPartialContent},
		"open range":     {"Range: bytes=30-", page[30:], http.StatusPartialContent},
		"not there":      {"Range: bytes=1000-", "", http.StatusRequestedRangeNotSatisfiable},
		"has it":         {"If-None-Match: " + etag, "", http.StatusNotModified},
		"has another":    {`If-None-Match: "sha256:0"`, page, 200},
		"if-range stale": {"If-Range: \"x\"", page, 200},
	} {
		got := d.do("GET", path, "", test.header)
		if got.Status != test.status || test.status != http.StatusRequestedRangeNotSatisfiable && got.Body != test.body {
			t.Errorf("%s: %d %q, want %d %q", name, got.Status, got.Body, test.status, test.body)
		}
	}
	if got := d.do("HEAD", path, ""); got.Status != 200 || got.Body != "" || got.Header.Get("Content-Length") != fmt.Sprint(len(page)) {
		t.Errorf("HEAD: %+v", got)
	}
}

func TestSignedURLOpensOneBlobAndNothingElse(t *testing.T) {
	d := open(t, drawFleet(t), withTokens(t, "acme "+acme, "other "+other))
	path := drawn(t, d, "Authorization: Bearer "+acme)
	bare, query, _ := strings.Cut(path, "?")
	if a := d.do("GET", path, ""); a.Status != 200 || a.Body != page {
		t.Errorf("signed: %d %s", a.Status, a.Body)
	}
	if a := d.do("GET", bare, "", "Authorization: Bearer "+acme); a.Status != 200 {
		t.Errorf("with the tenant's token: %d", a.Status)
	}
	d.wantProblem(d.do("GET", bare, "", "Authorization: Bearer "+other), http.StatusNotFound)
	id := strings.Split(bare, "/")[3]
	for name, what := range map[string]string{
		"no signature":        "GET " + bare,
		"another number":      "GET /v1/calls/" + id + "/blobs/0?" + query,
		"another spelling":    "GET /v1/calls/" + id + "/blobs/01?" + query,
		"another call":        "GET /v1/calls/" + strings.Repeat("a", 26) + "/blobs/1?" + query,
		"another tenant":      "GET " + strings.Replace(path, "tenant=acme", "tenant=other", 1),
		"later":               "GET " + strings.Replace(path, "expires=", "expires=9", 1),
		"the call":            "GET /v1/calls/" + id + "?" + query,
		"its events":          "GET /v1/calls/" + id + "/events?" + query,
		"the list":            "GET /v1/calls?" + query,
		"a cancel":            "DELETE " + path,
		"a path that climbs":  "GET /v1/calls/" + id + "/blobs/../../../v1/tools?" + query,
		"a signature cut off": "GET " + path[:len(path)-2],
	} {
		method, p, _ := strings.Cut(what, " ")
		if a := d.do(method, p, ""); a.Status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
}

func TestSignedURLExpires(t *testing.T) {
	d := open(t, drawFleet(t), withTokens(t, "acme "+acme), func(c *httpapi.Config) { c.BlobURLLife = time.Nanosecond })
	path := drawn(t, d, "Authorization: Bearer "+acme)
	for d.do("GET", path, "").Status == 200 { // until the second is over
	}
	d.wantProblem(d.do("GET", path, ""), http.StatusUnauthorized)
}

func TestPublicURLBeginsBlobURLs(t *testing.T) {
	key := make([]byte, 32)
	d := open(t, drawFleet(t), func(c *httpapi.Config) { c.PublicURL, c.SigningKey = "https://tools.example/fleet/", key })
	got := d.call(200, "/v1/calls", `{"tool":"draw","arguments":{"text":"x"}}`)
	url := got.Result.Content[0].Source.Value
	if !strings.HasPrefix(url, "https://tools.example/fleet/v1/calls/"+got.ID+"/blobs/1?") {
		t.Errorf("%q", url)
	}
	s := d.stream("GET", "/v1/calls/"+got.ID+"/events", "")
	for _, f := range s.rest() {
		if f.Type == "TOOL_CALL_RESULT" && !strings.Contains(f.Data, "https://tools.example/fleet/v1/") {
			t.Errorf("the stream says %s", f.Data)
		}
	}
}
