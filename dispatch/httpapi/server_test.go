package httpapi_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
	"github.com/toolfleet/toolfleet/internal/health"
	"github.com/toolfleet/toolfleet/metrics"
)

func TestOpenAPIHoldsEveryPath(t *testing.T) {
	d := open(t, dispatchtest.New(t))
	a := d.do("GET", "/openapi.json", "")
	doc := decode[struct {
		OpenAPI string                               `json:"openapi"`
		Paths   map[string]map[string]map[string]any `json:"paths"`
	}](t, a.Body)
	if a.Status != 200 || !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	for path, methods := range map[string]string{
		"/v1/calls": "get post", "/v1/calls/{id}": "get delete", "/v1/calls/{id}/events": "get",
		"/v1/calls/{id}/blobs/{n}": "get", "/v1/tools": "get", "/v1/tools/{name}": "get",
		"/v1/dead": "get", "/v1/dead/{id}": "get delete", "/v1/dead/{id}/redrive": "post",
		"/openapi.json": "get", "/healthz": "get", "/readyz": "get", "/metrics": "get",
	} {
		for method := range strings.SplitSeq(methods, " ") {
			if doc.Paths[path][method] == nil {
				t.Errorf("no %s %s", method, path)
			}
		}
		delete(doc.Paths, path)
	}
	if len(doc.Paths) > 0 {
		t.Errorf("paths that no test knows: %v", doc.Paths)
	}
	for _, want := range []string{`"oneOf"`, `"text/event-stream"`, `"application/problem+json"`, `"Idempotency-Key"`, `"Last-Event-ID"`} {
		if !strings.Contains(a.Body, want) {
			t.Errorf("the document does not hold %s", want)
		}
	}
	// The closed sets in it are those of package call.
	for _, e := range call.Ends {
		if !strings.Contains(a.Body, `"`+string(e.Status)+`"`) {
			t.Errorf("the document does not know the status %s", e.Status)
		}
	}
}

// The document tells every refusal that a client can meet, as the problem
// document it is, and none that this server never answers.
func TestOpenAPITellsTheRefusals(t *testing.T) {
	d := open(t, dispatchtest.New(t))
	doc := decode[struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]any `json:"content"`
			} `json:"responses"`
		} `json:"paths"`
	}](t, d.do("GET", "/openapi.json", "").Body)
	for path, methods := range doc.Paths {
		if !strings.HasPrefix(path, "/v1/") {
			continue
		}
		for method, op := range methods {
			want := "400 401 403 500 503"
			switch {
			case method == "post" && strings.Contains(path, "{"):
				want = "400 401 403 404 408 409 413 415 429 500 503"
			case method == "post":
				want = "400 401 403 408 409 413 415 429 500 503"
			case strings.Contains(path, "{"):
				want = "400 401 403 404 500 503"
			}
			var got []string
			for status, r := range op.Responses {
				if status < "4" {
					continue
				}
				got = append(got, status)
				if r.Content["application/problem+json"] == nil {
					t.Errorf("%s %s: %s is no problem document", method, path, status)
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != want {
				t.Errorf("%s %s: got %v, want %s", method, path, got, want)
			}
		}
	}
}

func TestWhatTheMuxRefusesIsAProblem(t *testing.T) {
	d := open(t, dispatchtest.New(t))
	for _, what := range []string{"GET /", "GET /v1", "GET /v1/nope", "GET /docs", "POST /nope", "GET /schemas/x.json"} {
		method, path, _ := strings.Cut(what, " ")
		d.wantProblem(d.do(method, path, "{}"), http.StatusNotFound)
	}
	for _, what := range []string{"PUT /v1/calls", "PATCH /v1/calls/" + strings.Repeat("a", 26), "DELETE /v1/tools", "POST /healthz"} {
		method, path, _ := strings.Cut(what, " ")
		a := d.do(method, path, "{}")
		if d.wantProblem(a, http.StatusMethodNotAllowed); !strings.Contains(a.Header.Get("Allow"), "GET") {
			t.Errorf("%s: allow %q", what, a.Header.Get("Allow"))
		}
	}
}

func TestReadiness(t *testing.T) {
	var mu sync.Mutex
	var why error
	d := open(t, dispatchtest.New(t), func(c *httpapi.Config) {
		c.Health = func() health.Report {
			mu.Lock()
			defer mu.Unlock()
			return health.Report{}.With("disk", nil).With("nats", why)
		}
	})
	if a := d.do("GET", "/readyz", ""); a.Status != 200 || !strings.Contains(a.Body, `{"status":"ok","checks":[{"name":"doors"},{"name":"disk"},{"name":"nats"}]}`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	mu.Lock()
	why = errors.New("NATS is away")
	mu.Unlock()
	a := d.do("GET", "/readyz", "")
	if p := d.wantProblem(a, 503); p.Detail != "Not ready: nats: NATS is away" || !strings.Contains(a.Body, `"errors":[{"message":"NATS is away","location":"nats"}]`) {
		t.Errorf("%s", a.Body)
	}
	if a := d.do("GET", "/healthz", ""); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// broken panics.
type broken struct{}

func (broken) List(string) []*catalog.Spec                  { panic("secret of the fleet") }
func (broken) Resolve(string, string) (*catalog.Spec, bool) { panic(errors.New("secret of the fleet")) }

func TestPanicIsAProblemAndOneLogLine(t *testing.T) {
	var log lockedBuffer
	d := open(t, dispatchtest.New(t), func(c *httpapi.Config) {
		c.Tools, c.Logger = broken{}, slog.New(slog.NewTextHandler(&log, nil))
	})
	for _, path := range []string{"/v1/tools", "/v1/tools/x"} {
		if a := d.do("GET", path, ""); strings.Contains(a.Body, "secret") {
			t.Errorf("%s", a.Body)
		} else {
			d.wantProblem(a, 500)
		}
	}
	if n := strings.Count(log.String(), "panic in a request"); n != 2 {
		t.Errorf("%d log lines:\n%s", n, log.String())
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestRequestsAreCountedByRoute(t *testing.T) {
	f := fleet(t)
	d := open(t, f, func(c *httpapi.Config) { c.MetricsHandler = metrics.Handler(f.Registry) })
	d.do("GET", "/v1/calls/"+strings.Repeat("a", 26), "")
	d.do("GET", "/nope/"+strings.Repeat("b", 40), "")
	d.stream("POST", "/v1/calls", `{"tool":"echo","arguments":{"text":"x"}}`).rest()
	a := d.do("GET", "/metrics", "")
	for _, want := range []string{
		`toolfleet_http_requests_total{code="404",door="http",method="GET",route="/v1/calls/{id}"} 1`,
		`toolfleet_http_requests_total{code="404",door="http",method="GET",route=""} 1`,
		`toolfleet_http_requests_total{code="200",door="http",method="POST",route="/v1/calls"} 1`,
		`toolfleet_http_streams{door="http"} 0`,
		`toolfleet_calls_admitted_total{tool="echo"} 1`,
	} {
		if !strings.Contains(a.Body, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(a.Body, "aaaa") || strings.Contains(a.Body, "bbbb") {
		t.Error("a path is a label")
	}
}

func TestMoreRequestsThanAreServedGet503(t *testing.T) {
	d := open(t, fleet(t), func(c *httpapi.Config) { c.MaxRequests = 1 })
	s := d.stream("POST", "/v1/calls", `{"tool":"hang","arguments":{"text":"x"}}`)
	s.until("ACTIVITY_DELTA")
	a := d.do("GET", "/v1/tools", "")
	if d.wantProblem(a, 503); a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if a := d.do("GET", "/healthz", ""); a.Status != 200 { // P44
		t.Errorf("health %d", a.Status)
	}
	s.res.Body.Close()
}

func TestNoBusIs503(t *testing.T) {
	f := dispatchtest.Alone(t, dispatchtest.Spec("echo", nil))
	f.Timeout = 100_000_000
	d := open(t, f)
	f.NATS.Shutdown()
	a := d.do("POST", "/v1/calls", `{"tool":"echo","arguments":{"text":"x"}}`)
	if d.wantProblem(a, 503); a.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v", a.Header)
	}
}
