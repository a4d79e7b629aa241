package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

// withCatalogue is a fleet whose tools are a file's, called echo, and the
// bucket's.
func withCatalogue(t *testing.T, f *dispatchtest.Fleet) func(*httpapi.Config) {
	t.Helper()
	store, err := catalog.OpenStore(t.Context(), natsdtest.JetStreamOn(t, f.NATS), catalog.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	echo := catalog.Spec{Name: "echo", Description: "Of a file.", Image: "local/echo:1", Command: []string{"/tool"}}
	follower, err := catalog.Follow(t.Context(), catalog.FollowerConfig{Tools: []catalog.Spec{echo}, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	f.Dispatcher.Catalog = follower.Catalog()
	return func(c *httpapi.Config) { c.Tools, c.Catalogue = follower.Catalog(), follower }
}

// declared is a tool as a request brings it.
func declared(name, more string) string {
	return fmt.Sprintf(`{"name":%q,"description":"Does %s.","image":"local/none:1","command":["/tool"]%s}`, name, name, more)
}

// changed is the answer to a change.
type changed struct {
	Revision uint64
	Steps    []struct {
		Name, Action string
		Hidden       bool
	}
}

func (c changed) String() string {
	var words []string
	for _, s := range c.Steps {
		word := s.Action + " " + s.Name
		if s.Hidden {
			word += " (hidden)"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func TestCatalogueIsChanged(t *testing.T) {
	f := dispatchtest.New(t)
	d := open(t, f, withCatalogue(t, f))
	var last changed
	for _, step := range []struct{ body, want string }{
		{`{"dryRun":true,"tools":[` + declared("sum", "") + `]}`, "added sum"},
		{`{"tools":[` + declared("sum", "") + `,` + declared("echo", "") + `]}`, "added echo (hidden), added sum"},
		{`{"tools":[` + declared("sum", `,"limits":{"timeout":"5s"}`) + `]}`, "changed sum"},
		{`{"tools":[` + declared("max", "") + `],"prune":true}`, "deleted echo, added max, deleted sum"},
		{`{"tools":[` + declared("sum", "") + `],"delete":["max"]}`, "deleted max, added sum"},
	} {
		a := d.do("POST", "/v1/catalog", step.body)
		if a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		if last = decode[changed](t, a.Body); last.String() != step.want {
			t.Errorf("%s, want %s", last, step.want)
		}
	}
	list := decode[struct {
		Revision uint64
		Tools    []struct{ Name, Source, Digest string }
	}](t, d.do("GET", "/v1/catalog", "").Body)
	if list.Revision != last.Revision || len(list.Tools) != 2 || list.Tools[0].Source != "file" || list.Tools[1].Name != "sum" || list.Tools[1].Source != "bucket" {
		t.Errorf("the catalogue is %+v", list)
	}
	one := decode[struct {
		Digest string
		Spec   catalog.Spec
	}](t, d.do("GET", "/v1/catalog/sum", "").Body)
	if one.Digest != list.Tools[1].Digest || one.Spec.Digest() != one.Digest || one.Spec.Limits.Pids != 64 {
		t.Errorf("sum is %+v", one)
	}
	d.wantProblem(d.do("GET", "/v1/catalog/max", ""), http.StatusNotFound)
}

// What cannot be is refused with everything that is wrong, and changes nothing.
func TestCatalogueRefuses(t *testing.T) {
	f := dispatchtest.New(t)
	d := open(t, f, withCatalogue(t, f))
	for _, test := range []struct {
		body   string
		status int
		want   []string
	}{
		{
			`{"tools":[` + declared("sum", `,"limits":{"cpu":-1},"warm":{"min":9,"max":1}`) + `,` + declared("a b", "") + `]}`, 400,
			[]string{"body.tools[0].limits.cpu", "body.tools[0].warm.min", "body.tools[1].name"},
		},
		{`{"tools":[` + declared("sum", `,"leash":1`) + `]}`, 400, []string{`unknown field \"leash\"`}},
		{`{"tools":[` + declared("sum", `,"parameters":{"type":"object","$ref":"https://example.com/s.json"}`) + `]}`, 400, []string{"body.tools[0].parameters"}},
		{`{"tools":[` + declared("sum", "") + `],"delete":["echo"]}`, 404, []string{`Nothing was changed: not in the fleet's catalogue: \"echo\".`}},
		{`{"tools":[` + declared("sum", "") + `],"ifRevision":7}`, 409, []string{"it is at revision 0 and not at 7"}},
		{`{"tools":[7]}`, 400, []string{"takes no JSON number"}},
		{`{"tool":[]}`, 400, []string{"unexpected property"}},
	} {
		a := d.do("POST", "/v1/catalog", test.body)
		d.wantProblem(a, test.status)
		for _, want := range test.want {
			if !strings.Contains(a.Body, want) {
				t.Errorf("%s: %s is not in %s", test.body, want, a.Body)
			}
		}
	}
	if a := d.do("GET", "/v1/catalog", ""); strings.Contains(a.Body, "sum") {
		t.Errorf("something was changed: %s", a.Body)
	}
}

// A tenant can neither see nor change the catalogue, and a tool that is not for
// it is not there: not in lists, not by its name, not in what a refused call is
// told, and not as the nearest name to a slip.
func TestTenantsSeeTheirToolsOnly(t *testing.T) {
	f := dispatchtest.New(t)
	d := open(t, f, withCatalogue(t, f), withTokens(t, "acme "+acme, "ops "+other+" operator"))
	asAcme, asOps := "Authorization: Bearer "+acme, "Authorization: Bearer "+other
	d.wantProblem(d.do("GET", "/v1/catalog", ""), http.StatusUnauthorized)
	for _, path := range []string{"/v1/catalog", "/v1/catalog/echo"} {
		d.wantProblem(d.do("GET", path, "", asAcme), http.StatusForbidden)
	}
	change := `{"tools":[` + declared("merger-plan", `,"tenants":["ops"]`) + `,` + declared("sum", `,"tenants":["acme"]`) + `]}`
	d.wantProblem(d.do("POST", "/v1/catalog", change, asAcme), http.StatusForbidden)
	if a := d.do("POST", "/v1/catalog", change, asOps); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	d.wantProblem(d.do("GET", "/v1/tools/merger-plan", "", asAcme), http.StatusNotFound)
	if a := d.do("GET", "/v1/tools/merger-plan", "", asOps); a.Status != 200 {
		t.Errorf("its own tenant: %d %s", a.Status, a.Body)
	}
	seen := d.do("GET", "/v1/tools", "", asAcme).Body
	for _, name := range []string{"merger-plan", "merger-plam", "merge"} {
		a := d.do("POST", "/v1/calls?wait=10s", `{"tool":"`+name+`","arguments":{}}`, asAcme)
		if a.Status != 200 || !strings.Contains(a.Body, "unknown_tool") || !strings.Contains(a.Body, "sum") {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		seen += strings.ReplaceAll(a.Body, `"`+name+`"`, "") // the name that was asked for
		seen = strings.ReplaceAll(seen, `\"`+name+`\"`, "")
	}
	if strings.Contains(seen, "merger") {
		t.Errorf("acme was told of another's tool: %s", seen)
	}
	if !strings.Contains(seen, `"sum"`) {
		t.Errorf("acme does not see its own tool: %s", seen)
	}
}
