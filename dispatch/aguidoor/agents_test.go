package aguidoor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/dispatch/aguidoor"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestReadAgents(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "planner.headers", "# secrets\n\nauthorization: Bearer x:y\nX-Two: a\nX-Two: b\n")
	name := write(t, dir, "agents.yaml", `
agents:
  - name: planner
    url: https://planner.example/agui?x=1
    headersFile: planner.headers
    tenants: [acme]
    silence: 90s
  - name: second
    url: http://127.0.0.1:9000/
`)
	agents, err := aguidoor.ReadAgents(name)
	if err != nil {
		t.Fatal(err)
	}
	a := agents[0]
	if len(agents) != 2 || a.Name != "planner" || a.Silence != 90*time.Second || a.Tenants[0] != "acme" ||
		a.Header.Get("Authorization") != "Bearer x:y" || len(a.Header["X-Two"]) != 2 {
		t.Errorf("%+v", agents)
	}
	for name, test := range map[string]struct{ agents, headers, says string }{
		"unknown field":  {"agents:\n  - name: a\n    uri: x\n", "", "line 3"},
		"not a list":     {"agents: {a: b}\n", "", "line 1"},
		"bad time":       {"agents:\n  - name: a\n    silence: soon\n", "", "line 3"},
		"no file":        {"agents:\n  - name: a\n    headersFile: nope\n", "", "nope"},
		"bad header":     {"agents:\n  - name: a\n    headersFile: h\n", "Good: 1\nsecret\n", "line 2"},
		"header of ours": {"agents:\n  - name: a\n    headersFile: h\n", "host: evil\n", "line 1"},
		"bad name":       {"agents:\n  - name: a\n    headersFile: h\n", "se cret: 1\n", "line 1"},
	} {
		dir := t.TempDir()
		if test.headers != "" {
			write(t, dir, "h", test.headers)
		}
		_, err := aguidoor.ReadAgents(write(t, dir, "agents.yaml", test.agents))
		if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := aguidoor.ReadAgents(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	_, err := aguidoor.New(aguidoor.Config{MaxCalls: -1, Agents: []aguidoor.Agent{
		{Name: "a b", URL: "http://x.example/"},
		{Name: "ftp", URL: "ftp://x.example/"},
		{Name: "user", URL: "https://a:secret@x.example/"},
		{Name: "twice", URL: "https://x.example/"},
		{Name: "twice", URL: "https://x.example/"},
		{Name: "late", URL: "https://x.example/", Silence: -1},
		{Name: "whose", URL: "https://x.example/", Tenants: []string{"A"}},
	}})
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{"required", "bounds", `"a b"`, `"ftp"`, "headersFile", "declared twice", `"late"`, `"whose"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v says nothing of %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("%v tells a password", err)
	}
	f := dispatchtest.New(t)
	if _, err := aguidoor.New(aguidoor.Config{Dispatcher: f.Dispatcher, Tools: f.Catalog, Logger: f.Logger}); err != nil {
		t.Error(err)
	}
}
