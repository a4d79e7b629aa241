package httpapi_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// bury makes a call of a tenant that has a dead letter, and returns its id.
// started says that the tool may have run.
func bury(t *testing.T, f *dispatchtest.Fleet, tenant, id string, started bool) call.Key {
	t.Helper()
	ticket, err := f.Submit(t.Context(), call.Call{
		Tenant: tenant, ThreadID: "t", RunID: "r", Scope: id, ToolCallID: id, Tool: "echo", Arguments: `{"text":"again"}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	job := catalog.Job{Call: ticket.Call, Spec: &catalog.Spec{Name: "echo"}, SpecDigest: "sha256:0", Admitted: time.Now()}
	attempt := call.Attempt{N: 3, Worker: "w-1", Incarnation: "i", Time: time.Now().UTC(), Started: started}
	spent := call.Spent(3)
	if filed, err := f.Queue.Dead().File(t.Context(), queue.NewLetter(job, spent, []call.Attempt{attempt}, time.Now())); !filed || err != nil {
		t.Fatal(filed, err)
	}
	ref := results.Ref{Tenant: tenant, Key: ticket.Key}
	if won, err := f.Log.Finish(t.Context(), ref, id, spent); !won || err != nil {
		t.Fatal(won, err)
	}
	return ticket.Key
}

type lettersBody struct {
	Letters []struct {
		ID       call.Key `json:"id"`
		Kind     string   `json:"kind"`
		Attempts int      `json:"attempts"`
		Started  bool     `json:"started"`
	} `json:"letters"`
	Next string `json:"next"`
}

func TestDeadLetters(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	d := open(t, f)
	first, second := bury(t, f, "default", "a", false), bury(t, f, "default", "b", true)

	page := decode[lettersBody](t, d.do("GET", "/v1/dead?limit=1", "").Body)
	rest := decode[lettersBody](t, d.do("GET", "/v1/dead?limit=2&cursor="+page.Next, "").Body)
	if len(page.Letters) != 1 || page.Letters[0].ID != first || len(rest.Letters) != 1 || rest.Letters[0].ID != second || rest.Next != "" {
		t.Errorf("pages %+v, %+v", page, rest)
	}
	if l := rest.Letters[0]; l.Kind != "sandbox_failed" || l.Attempts != 3 || !l.Started {
		t.Errorf("the line is %+v", l)
	}
	shown := d.do("GET", "/v1/dead/"+string(first), "").Body
	for _, want := range []string{`"arguments":"{\"text\":\"again\"}"`, `"worker":"w-1"`, `"specDigest":"sha256:0"`} {
		if !strings.Contains(shown, want) {
			t.Errorf("%s lacks %s", shown, want)
		}
	}

	redrive := func(id call.Key, body string) answer {
		return d.do("POST", "/v1/dead/"+string(id)+"/redrive", body)
	}
	a := redrive(first, `{}`)
	made := decode[callBody](t, a.Body)
	if a.Status != http.StatusAccepted || a.Header.Get("Location") != "/v1/calls/"+made.ID || made.ID == string(first) || made.Status != "queued" ||
		!strings.Contains(a.Body, fmt.Sprintf(`"redriveOf":%q`, first)) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if p := d.wantProblem(redrive(second, `{}`), http.StatusConflict); !strings.Contains(p.Detail, "not declared idempotent") || strings.Contains(p.Detail, "dispatch:") {
		t.Errorf("%s", p.Detail)
	}
	if a := redrive(second, `{"force":true}`); a.Status != http.StatusAccepted {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	d.wantProblem(redrive(second, `{"force":true}`), http.StatusNotFound)
	d.wantProblem(redrive(first, `{"forec":true}`), http.StatusBadRequest)
	d.wantProblem(d.do("GET", "/v1/dead?cursor=!", ""), http.StatusBadRequest)

	third := bury(t, f, "default", "c", false)
	if a := d.do("DELETE", "/v1/dead/"+string(third), ""); a.Status != http.StatusNoContent || a.Body != "" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	d.wantProblem(d.do("DELETE", "/v1/dead/"+string(third), ""), http.StatusNotFound)
	d.wantProblem(d.do("GET", "/v1/dead/nonsense", ""), http.StatusNotFound)
}

// TestDeadLettersAreTheTenants: the token decides whose letters there are.
func TestDeadLettersAreTheTenants(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("a token-of-tenant-a-0123456789abcdef\nb token-of-tenant-b-0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	d := open(t, f, func(c *httpapi.Config) { c.TokenFile = tokens })
	id := string(bury(t, f, "a", "c", false))
	b := "Authorization: Bearer token-of-tenant-b-0123456789abcdef"
	if list := decode[lettersBody](t, d.do("GET", "/v1/dead", "", b).Body); len(list.Letters) > 0 {
		t.Errorf("another tenant lists %+v", list)
	}
	d.wantProblem(d.do("GET", "/v1/dead/"+id, "", b), http.StatusNotFound)
	d.wantProblem(d.do("POST", "/v1/dead/"+id+"/redrive", `{"force":true}`, b), http.StatusNotFound)
	d.wantProblem(d.do("DELETE", "/v1/dead/"+id, "", b), http.StatusNotFound)
	if a := d.do("GET", "/v1/dead/"+id, "", "Authorization: Bearer token-of-tenant-a-0123456789abcdef"); a.Status != http.StatusOK {
		t.Errorf("its tenant gets %d %s", a.Status, a.Body)
	}
}
