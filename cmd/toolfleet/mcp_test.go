package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox/image"
)

// TestMCP calls tools of MCP servers through a whole fleet: servers that others
// have published, and one of ours that does what servers must not.
func TestMCP(t *testing.T) {
	f := mcpFleet(t)
	t.Run("Published", f.testPublished)
	t.Run("Progress", f.testMCPProgress)
	t.Run("Import", f.testImport)
	t.Run("ImportRefuses", f.testImportRefuses)
	t.Run("Everywhere", f.testEverywhere)
	t.Run("BadServers", f.testBadServers)
	f.t = t
	f.stop()
}

// mcpFleet is a fleet with the servers of the example "node", and the bad one.
func mcpFleet(t *testing.T) *fleet {
	dir, root := t.TempDir(), repo(t)
	images, tools := filepath.Join(dir, "images"), filepath.Join(dir, "tools")
	for _, d := range []string{images, tools} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	node := filepath.Join(root, "bin", "images", "node.tar")
	if _, err := os.Stat(node); err != nil {
		t.Fatalf("no image of npm's servers: %v; run `make tool-images` first", err)
	}
	if err := os.Symlink(node, filepath.Join(images, "node.tar")); err != nil {
		t.Fatal(err)
	}
	img, err := image.Recipe{Package: filepath.Join(root, "worker", "mcp", "testserver")}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := image.WriteArchive(&archive, "local/testserver:1", img); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(images, "testserver.tar"), archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(tools, onlyYAML{os.DirFS(filepath.Join(root, "examples", "tools", "node"))}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range badServers {
		writeServer(t, tools, catalog.Spec{Name: bad.mode, Command: []string{"/tool", bad.mode}})
	}
	for _, s := range everywhere {
		writeServer(t, tools, s)
	}
	for _, name := range []string{"write_file", "no_such_tool"} {
		writeServer(t, tools, catalog.Spec{
			Name: name, Image: "local/node:1",
			Command: []string{"node", "/srv/node_modules/.bin/mcp-server-filesystem", "/workspace"},
		})
	}
	return startFleet(t, dir, "--images", images)
}

// writeServer writes the file of a tool of a server, by default the bad one.
func writeServer(t *testing.T, tools string, s catalog.Spec) {
	t.Helper()
	s.Description, s.Image, s.Protocol = "A tool for tests.", cmp.Or(s.Image, "local/testserver:1"), catalog.ProtocolMCP
	s.Limits.Timeout = catalog.Duration(10e9)
	if s.Name == "mute" {
		s.Limits.Timeout = catalog.Duration(1e9)
	}
	s.Warm.Max = 1
	s.SetDefaults()
	text, err := catalog.YAML(&s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tools, s.Name+".tool.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// testPublished: servers as npm has them answer as they do anywhere.
func (f *fleet) testPublished(t *testing.T) {
	for _, c := range []struct {
		tool string
		args object
		kind call.Kind
		says string
		part string // the type of a part beside the text
	}{
		{"everything-get-tiny-image", object{}, "", "Here's the image you requested:", agui.PartImage},
		{"filesystem-list_directory", object{"path": "/srv"}, "", "[FILE] package.json", ""},
		{"filesystem-read_text_file", object{"path": "/srv/package.json", "head": 2}, "", `"name": "node-tools"`, ""},
		{"filesystem-read_text_file", object{"path": "/etc/passwd"}, call.KindToolError, "Access denied", ""},
		{"write_file", object{"path": "/workspace/out/note.pdf", "content": "%PDF-1.7"}, "", "Successfully wrote", agui.PartDocument},
		{"no_such_tool", object{}, call.KindToolError, "no_such_tool", ""},
		{"memory-create_entities", object{"entities": []object{{"name": "a", "entityType": "b", "observations": []string{"c"}}}}, "", `"entityType": "b"`, ""},
	} {
		t.Run(c.tool, func(t *testing.T) {
			a := f.call(c.tool, c.args)
			if a.kind() != c.kind || !strings.Contains(a.text(), c.says) {
				t.Errorf("kind %q: %s", a.kind(), a.text())
			}
			found := c.part == ""
			for _, p := range a.Result.Content {
				found = found || p.Type == c.part && (p.Source.MimeType == "image/png" || p.Source.MimeType == "application/pdf")
			}
			if !found {
				t.Errorf("no %s in %+v", c.part, a.Result.Content)
			}
		})
	}
}

// testMCPProgress: what a server tells of its call is seen while it runs.
func (f *fleet) testMCPProgress(t *testing.T) {
	id := f.submit("everything-trigger-long-running-operation", object{"duration": 2, "steps": 4})
	var seen []string
	f.events(id, func(ev map[string]any) bool {
		raw, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 4 {
			if strings.Contains(string(raw), fmt.Sprintf(`{"current":%d,"total":4}`, n+1)) {
				seen = append(seen, fmt.Sprint(n+1))
			}
		}
		return true
	})
	if diff := gocmp.Diff([]string{"1", "2", "3", "4"}, seen); diff != "" {
		t.Errorf("steps seen (-want +got):\n%s", diff)
	}
	if a := f.await(id); a.Result.IsError || !strings.Contains(a.text(), "completed. Duration: 2 seconds, Steps: 4") {
		t.Errorf("%s", a.text())
	}
}

// importMCP runs tools import-mcp on the fleet's containerd.
func (f *fleet) importMCP(t *testing.T, out, image, prefix string, command ...string) (code int, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), f.cmd.Path, append([]string{
		"tools", "import-mcp", "--state", filepath.Join(f.state, "state"), "--programs", repo(t),
		"--image", image, "--name-prefix", prefix, "--out", out, "--timeout", "20s", "--",
	}, command...)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	text, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// testImport: the files that import-mcp writes are good, and a fleet that gets
// them runs what they declare, without a restart.
func (f *fleet) testImport(t *testing.T) {
	const server = "/srv/node_modules/.bin/mcp-server-everything"
	out := filepath.Join(f.state, "tools", "imported")
	code, said := f.importMCP(t, out, "local/node:1", "all-", "node", server)
	if code != exitOK || !strings.Contains(said, "all-get-sum.tool.yaml\n") || !strings.Contains(said, "left out: simulate-research-query: it can only be run as a task") {
		t.Fatalf("exit code %d: %s", code, said)
	}
	specs, err := catalog.LoadDir(out)
	if err != nil || len(specs) < 10 {
		t.Fatalf("%d tools, %v", len(specs), err)
	}
	f.awaitTool(t, "all-get-sum")
	if a := f.call("all-get-sum", object{"a": 20, "b": 22}); a.text() != "The sum of 20 and 22 is 42." {
		t.Errorf("kind %q: %s", a.kind(), a.text())
	}
	if a := f.call("all-get-sum", object{"a": "x"}); a.kind() != call.KindInvalidArguments {
		t.Errorf("kind %q: %s", a.kind(), a.text())
	}
	if code, said := f.importMCP(t, out, "local/node:1", "all-", "node", server); code != exitFailed || !strings.Contains(said, "is there already; --force replaces it") {
		t.Errorf("again: exit code %d: %s", code, said)
	}
}

// awaitTool waits until the fleet has a tool.
func (f *fleet) awaitTool(t *testing.T, name string) {
	t.Helper()
	for t.Context().Err() == nil {
		if code, _ := f.do("GET", "/v1/tools/"+name, nil); code == http.StatusOK {
			return
		}
	}
	t.Fatalf("the fleet never had the tool %s", name)
}

func (f *fleet) testImportRefuses(t *testing.T) {
	for _, c := range []struct {
		command []string
		says    string
	}{
		{[]string{"/tool", "many-tools"}, "the server announces more than 1000 tools"},
		{[]string{"/tool", "dies"}, "it exited with code 1; it said:\ncannot find module 'everything'"},
		{[]string{"/tool", "banner"}, "it wrote to stdout what is no message of MCP"},
		{[]string{"/no-such-program"}, "/no-such-program: no such file in the image"},
	} {
		t.Run(strings.Join(c.command, " "), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			code, said := f.importMCP(t, out, "local/testserver:1", "", c.command...)
			if _, err := os.Stat(out); code != exitFailed || !strings.Contains(said, c.says) || err == nil {
				t.Errorf("exit code %d: %s", code, said)
			}
		})
	}
}

// everywhere are tools of one server, wherever a sandbox may be.
var everywhere = []catalog.Spec{
	{Name: "in-a-container", Command: []string{"/tool", "stays"}},
	{Name: "in-a-cell", Command: []string{"/tool", "stays"}, Isolation: catalog.IsolationCell},
	{Name: "in-gvisor", Command: []string{"/tool", "stays"}, Runtime: "runsc"},
	{Name: "in-a-cell-in-gvisor", Command: []string{"/tool", "stays"}, Runtime: "runsc", Isolation: catalog.IsolationCell},
}

// testEverywhere: a server that does not go when it is asked to is ended, and that
// is no failure; a container of cells serves the next call.
func (f *fleet) testEverywhere(t *testing.T) {
	for _, s := range everywhere {
		t.Run(s.Name, func(t *testing.T) {
			var sandboxes []string
			for range 2 {
				a := f.call(s.Name, object{})
				if a.Result.IsError || a.text() != "answered" || a.Result.Execution.KilledBy != "" {
					t.Fatalf("kind %q: %s", a.kind(), a.text())
				}
				sandboxes = append(sandboxes, a.Result.Execution.Sandbox)
			}
			if same := sandboxes[0] == sandboxes[1]; same != (s.Isolation == catalog.IsolationCell) {
				t.Errorf("the sandboxes were %v", sandboxes)
			}
		})
	}
}

// badServers are modes of the test server, and how a call of each ends.
var badServers = []struct {
	mode string
	kind call.Kind
	says string
}{
	{"dies", call.KindToolError, "The tool exited with code 1. It said:\ncannot find module 'everything'"},
	{"mute", call.KindTimeout, "The tool did not end within 1s and was stopped."},
	{"banner", call.KindCrashed, "The tool broke the protocol: it wrote to stdout what is no message of MCP"},
	{"junk", call.KindCrashed, "It said:\nhello from stderr"},
	{"half", call.KindCrashed, "The tool broke the protocol: the MCP server ended before it had answered."},
	{"long", call.KindOutputLimit, "The tool wrote more than its output limit of 1 MiB and was stopped"},
	{"nags", call.KindOutputLimit, "The tool wrote more than its output limit of 1 MiB and was stopped"},
	{"error", call.KindToolError, "The MCP server answered with an error: no such luck (code -32603)."},
	{"is-error", call.KindToolError, "it is broken"},
	{"exit", call.KindToolError, "The tool exited with code 3. It said:\nthe disk was eaten"},
	{"input", call.KindToolError, "The MCP server asks for input in the middle of the call"},
	{"asks", "", "100:true 101:true 102:true 103:false"},
	{"floods", "", "answered"},
	{"crashes", "", "answered"},
	{"many-tools", "", "many-tools {}"}, // nobody asks for its list
}

// testBadServers: whatever a server does, its call has one clear result.
func (f *fleet) testBadServers(t *testing.T) {
	for _, bad := range badServers {
		t.Run(bad.mode, func(t *testing.T) {
			a := f.call(bad.mode, object{})
			if a.kind() != bad.kind || !strings.Contains(a.text(), bad.says) {
				t.Errorf("kind %q: %s\nwant %q: %s", a.kind(), a.text(), bad.kind, bad.says)
			}
		})
	}
}
