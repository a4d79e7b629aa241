package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// complete is a file that uses every field.
const complete = `apiVersion: toolfleet/v1
kind: Tool
name: word-count
type: function
description: Counts words in a text.
useWhen: ""
image: local/word-count:1
pull: missing
command: [/tool]
env: {}
protocol: exec
output: auto
parameters: {type: object, required: [text], properties: {text: {type: string}}, additionalProperties: false}
outputSchema: {}
annotations: {readOnly: true, idempotent: true, destructive: false, openWorld: false}
parallel: true
approval: none
isolation: container
runtime: runc
class: default
network: none
limits: {timeout: 30s, grace: 0s, cpu: 1, memory: 256Mi, pids: 64, disk: 64Mi, output: 1Mi}
warm: {min: 1, max: 4}
maxInFlight: 2
queueTimeout: 10m
secrets: []
files: {}
reminder: ""
tenants: []
`

// minimal is a file that uses what it must; it stands before other fields.
const minimal = `apiVersion: toolfleet/v1
kind: Tool
name: t
description: d
image: i
command: [/tool]
`

func TestParseComplete(t *testing.T) {
	got, err := Parse([]byte(complete))
	if err != nil {
		t.Fatal(err)
	}
	want := Spec{
		APIVersion: "toolfleet/v1", Kind: "Tool", Name: "word-count", Type: "function",
		Description: "Counts words in a text.", Image: "local/word-count:1", Pull: "missing",
		Command: []string{"/tool"}, Env: map[string]string{}, Protocol: "exec", Output: "auto",
		Parameters:  json.RawMessage(`{"type":"object","required":["text"],"properties":{"text":{"type":"string"}},"additionalProperties":false}`),
		Annotations: Annotations{ReadOnly: true, Idempotent: true}, Parallel: true,
		Approval: "none", Isolation: "container", Runtime: "runc", Class: "default",
		Limits: Limits{Timeout: Duration(30 * time.Second), CPU: 1, Memory: 256 << 20, Pids: 64, Disk: 64 << 20, Output: 1 << 20},
		Warm:   Warm{Min: 1, Max: 4}, MaxInFlight: 2, QueueTimeout: Duration(10 * time.Minute),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestParseDefaults(t *testing.T) {
	got, err := Parse([]byte(minimal + "annotations: {readOnly: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := Spec{Name: "t", Description: "d", Image: "i", Command: []string{"/tool"}, Warm: Warm{Max: 4}, Annotations: Annotations{ReadOnly: true, Idempotent: true}}
	want.SetDefaults()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	none, err := Parse([]byte(minimal + "warm: {max: 0}\n"))
	if err != nil || none.Warm.Max != 0 {
		t.Errorf("warm.max 0 became %d, %v", none.Warm.Max, err)
	}
}

// TestServerTool: a server may know the tool by another name than its file's.
func TestServerTool(t *testing.T) {
	for yaml, want := range map[string]string{"": "t", "mcp: {}\n": "t", "mcp: {tool: files/read}\n": "files/read"} {
		s, err := Parse([]byte(minimal + "protocol: mcp\n" + yaml))
		if err != nil || s.ServerTool() != want {
			t.Errorf("%q: %q, %v", yaml, s.ServerTool(), err)
		}
	}
}

func TestParseFaults(t *testing.T) {
	for _, tt := range []struct{ name, yaml, want string }{
		{"empty", "", "is empty; expected a tool"},
		{"comment", "# nothing\n", "is empty; expected a tool"},
		{"syntax", "a: [\n", "1: is not YAML: "},
		{"syntax further down", minimal + "warm: {min: 1\nuser: 1\n", ": is not YAML: "},
		{"a colon too many", strings.Replace(minimal, "name: t", "name: t: u", 1), "3: is not YAML: "},
		{"not a mapping", "- a\n", "is a list; expected a tool"},
		{"no runtime's name", minimal + "runtime: ../runsc\n", "7: runtime: expected a runtime handler such as runc, got \"../runsc\""},
		{"two documents", minimal + "---\n" + minimal, "holds more than one document"},
		{"unknown field", minimal + "parametres: {}\n", "7: parametres: unknown field; did you mean parameters?"},
		{"unknown inner field", minimal + "limits:\n  cpu: 1\n  mem: 1Gi\n", "9: limits.mem: unknown field"},
		{"twice", minimal + "image: j\n", "7: image: is given twice; the first is on line 5"},
		{"number for text", strings.Replace(minimal, "name: t", "name: 123", 1), "3: name: expected text (put it in quotes), got 123"},
		{"list for text", minimal + "useWhen: [a]\n", "7: useWhen: expected text, got a list"},
		{"nothing for text", minimal + "useWhen:\n", "7: useWhen: expected text, got nothing"},
		{"text for bool", minimal + "parallel: \"true\"\n", `7: parallel: expected true or false, got "true"`},
		{"text for number", minimal + "warm: {min: many}\n", `7: warm.min: expected a whole number, got "many"`},
		{"text for list", minimal + "tenants: acme\n", `7: tenants: expected a list, got "acme"`},
		{"number in argv", strings.Replace(minimal, "[/tool]", "[/tool, 5]", 1), "6: command[1]: expected text (put it in quotes), got 5"},
		{"NaN", minimal + "limits: {cpu: .nan}\n", "7: limits.cpu: expected a number, got .nan"},
		{"infinite", minimal + "limits: {cpu: .inf}\n", "7: limits.cpu: expected a number, got .inf"},
		{"negative cpu", minimal + "limits: {cpu: -1}\n", "7: limits.cpu: expected a number of cores"},
		{"no unit", minimal + "limits: {timeout: 30}\n", `7: limits.timeout: "30" is not a duration such as 30s`},
		{"zero timeout", minimal + "limits: {timeout: 0s}\n", "7: limits.timeout: expected more than 0 and at most 1h, got 0s"},
		{"negative timeout", minimal + "limits: {timeout: -1s}\n", `7: limits.timeout: "-1s" is not a duration`},
		{"long timeout", minimal + "limits: {timeout: 61m}\n", "7: limits.timeout: expected more than 0 and at most 1h, got 1h1m"},
		{"huge timeout", minimal + "limits: {timeout: 1e18s}\n", "7: limits.timeout: "},
		{"decimal suffix", minimal + "limits: {memory: 64M}\n", `7: limits.memory: "64M" is not a size such as`},
		{"huge memory", minimal + "limits: {memory: 99999999Ti}\n", "7: limits.memory: \"99999999Ti\" is larger than a size can be"},
		{"negative memory", minimal + "limits: {memory: -1}\n", `7: limits.memory: "-1" is not a size`},
		{"small memory", minimal + "limits: {memory: 1Mi}\n", "7: limits.memory: expected 8Mi to 1Ti, got 1Mi"},
		{"no disk", minimal + "limits: {disk: 0}\n", "7: limits.disk: expected 1Mi to 1Ti, got 0"},
		{"warm", minimal + "warm: {min: 5}\n", "7: warm.min: expected 0 to 4, got 5"},
		{"choice", minimal + "pull: sometimes\n", `7: pull: expected missing or always or never, got "sometimes"`},
		{"empty choice", minimal + "pull: \"\"\n", `7: pull: expected missing or always or never, got ""`},
		{"always without a registry", minimal + "pull: always\n", "7: pull: always asks a registry, and image names none"},
		{"no reference", strings.Replace(minimal, "image: i", "image: local/Word-Count:1", 1), `5: image: expected an OCI reference such as local/word-count:1, in lower case but for its tag, got "local/Word-Count:1"`},
		{"half a digest", strings.Replace(minimal, "image: i", "image: local/greet@sha256:abc", 1), "5: image: expected an OCI reference"},
		{"missing", "apiVersion: toolfleet/v1\nkind: Tool\n", "1: image: is missing"},
		{"fleet's env", minimal + "env: {TOOLFLEET_FD: \"9\"}\n", "7: env.TOOLFLEET_FD: names that begin TOOLFLEET_ belong to the fleet"},
		{"user", minimal + "user: root\n", "7: user: expected uid or uid:gid"},
		{"large uid", minimal + "user: \"65536\"\n", "7: user: expected uid or uid:gid, numbers below 65536"},
		{"workdir", minimal + "workdir: ../x\n", "7: workdir: expected a clean absolute path"},
		{"schema", minimal + "parameters:\n  type: object\n  properties:\n    a: {type: strin}\n", "8: parameters: schema: not a JSON Schema: /properties/a/type:"},
		{"schema of a file", minimal + "parameters: {type: object, $ref: \"file:///etc/passwd\"}\n", "a schema may refer to itself only"},
		{"schema of no object", minimal + "parameters: {type: string}\n", "7: parameters: expected a schema with type: object"},
		{"schema with twins", minimal + "parameters:\n  type: object\n  type: object\n", "9: parameters.type: is given twice"},
		{"alias", minimal + "env: &e {}\noutputSchema: *e\n", "8: outputSchema: aliases are not supported; write the value out"},
		{"merge", minimal + "outputSchema: {<<: {}}\n", "7: outputSchema: expected a plain name as a key"},
		{"tag", minimal + "outputSchema: {default: !secret x}\n", "7: outputSchema.default: expected a JSON value"},
		{"server tool with an image", minimal + "type: server\nserverType: bash\n", "7: type: a server tool runs at the provider"},
		{"function with a server type", minimal + "serverType: bash\n", "serverType and serverConfig belong to type: server"},
		{"mcp without its protocol", minimal + "mcp: {tool: x}\n", `7: mcp: is for protocol: mcp, and this tool has "exec"`},
		{"mcp tool", minimal + "protocol: mcp\nmcp: {tool: \"a\\nb\"}\n", "8: mcp.tool: expected at most 256 bytes of printable text"},
		{"mcp and output", minimal + "protocol: mcp\noutput: json\n", "8: output: is for protocol: exec"},
		{"hints that cannot both be", minimal + "annotations: {readOnly: true, destructive: true}\n", "7: annotations: a tool that is readOnly changes nothing"},
		{"network", minimal + "network: {allow: [\"api.example.com\"]}\n", "network.allow[0]: expected a port"},
		{"network of nothing", minimal + "network: {allow: []}\n", "network.allow: has 0 entries"},
		{"network of nonsense", minimal + "network: all\n", "7: network: is neither none nor"},
		{"grace", minimal + "limits: {grace: 11s}\n", "7: limits.grace: expected 0s to 10s, got 11s"},
		{"files of nonsense", minimal + "files: {in: all}\n", "7: files.in: "},
		{"files with an unknown field", minimal + "files: {inn: []}\n", "7: files.inn: "},
		{"files in", minimal + "files:\n  in:\n    - image/*\n    - Image/PNG\n    - image/*\n    - /etc\n", "10: files.in[1]: expected a MIME type in lower case, such as application/pdf or image/*, got \"Image/PNG\"\n11: files.in[2]: names \"image/*\" twice\n12: files.in[3]: "},
		{"files out", minimal + "files: {out: 65Mi}\n", "7: files.out: expected 0 to 64Mi, got 65Mi"},
		{"maxInFlight", minimal + "maxInFlight: -1\n", "7: maxInFlight: expected 0 or more, got -1"},
		{"tenants", minimal + "tenants: [a, B, a]\n", "7: tenants[1]: expected 1 to 63 of a-z, 0-9 and -, got \"B\"\n7: tenants[2]: names \"a\" twice"},
		{"large", minimal + "reminder: " + strings.Repeat("x", MaxSpec) + "\n", "at most 131072 are allowed"},
		{"larger", minimal + "#" + strings.Repeat("x", maxFile) + "\n", "at most 524288 are allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(tt.yaml))
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("err = %v", err)
			}
			for i := range problems {
				if problems[i].Line > 0 {
					problems[i].File = "F" // as a loader would
				}
			}
			if text := strings.ReplaceAll(problems.Error(), "F:", ""); !strings.Contains(text, tt.want) {
				t.Errorf("got:\n%s\nwant in it:\n%s", text, tt.want)
			}
		})
	}
}

func TestParseListsEveryFault(t *testing.T) {
	_, err := Parse([]byte("apiVersion: v0\nkind: Tool\nname: a b\ncolour: red\nlimits: {cpu: fast, pids: 0}\n"))
	var got []string
	var problems Problems
	errors.As(err, &problems)
	for _, p := range problems {
		got = append(got, p.Field)
	}
	want := []string{"apiVersion", "description", "image", "command", "name", "colour", "limits.cpu", "limits.pids"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faulty fields (-want +got):\n%s", diff)
	}
}

func TestParseKeepsNumbersAndOrder(t *testing.T) {
	s, err := Parse([]byte(minimal + `parameters:
  type: object
  properties:
    z: {maximum: 90071992547409931, minimum: 0x10, multipleOf: 0.10, default: 2026-11-30}
    a: {maxLength: 1_000, enum: [yes, ~, true, 017, "017"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"object","properties":{"z":{"maximum":90071992547409931,"minimum":16,"multipleOf":0.10,"default":"2026-11-30"},"a":{"maxLength":1000,"enum":["yes",null,true,15,"017"]}}}`
	if string(s.Parameters) != want {
		t.Errorf("parameters = %s", s.Parameters)
	}
}

func TestLoadDir(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a/tool.yaml", strings.Replace(minimal, "name: t", "name: a", 1))
	write(t, dir, "b/c/b.tool.yaml", strings.Replace(minimal, "name: t", "name: b", 1))
	write(t, dir, "b/other.yaml", "not: a tool\n")
	write(t, dir, ".hidden/tool.yaml", "broken\n")
	if err := os.Symlink("../a/tool.yaml", filepath.Join(dir, "b", "again.yaml")); err != nil {
		t.Fatal(err)
	}
	specs, err := LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(specs) != 2 || specs[0].Name != "a" || specs[1].Name != "b" {
		t.Errorf("specs = %+v", specs)
	}
}

func TestLoadDirReadsAConfigMap(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "..2026_11_30/t.tool.yaml", minimal)
	for link, to := range map[string]string{"..data": "..2026_11_30", "t.tool.yaml": "..data/t.tool.yaml"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	specs, err := LoadDir(dir)
	if err != nil || len(specs) != 1 {
		t.Errorf("specs = %+v, %v", specs, err)
	}
}

func TestLoadDirFaults(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside, "x.tool.yaml", minimal)
	write(t, dir, "1/tool.yaml", minimal)
	write(t, dir, "2/tool.yaml", minimal)
	write(t, dir, "3/tool.yaml", minimal+"colour: red\n")
	if err := os.Symlink(filepath.Join(outside, "x.tool.yaml"), filepath.Join(dir, "4.tool.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "5.tool.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := LoadDir(dir)
	if err == nil {
		t.Fatal("loaded")
	}
	for _, want := range []string{
		dir + "/2/tool.yaml: name: \"t\" is declared already, in " + dir + "/1/tool.yaml",
		dir + "/3/tool.yaml:7: colour: unknown field",
		dir + "/4.tool.yaml: statat 4.tool.yaml: path escapes from parent",
		dir + "/5.tool.yaml: is not a regular file",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got:\n%v\nwant in it:\n%s", err, want)
		}
	}
	if _, err := LoadDir(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v", err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file may declare several tools, as programs with several describe themselves;
// lines are the file's, and every document is judged.
func TestLoadSeveralOfAFile(t *testing.T) {
	dir := t.TempDir()
	second := strings.Replace(minimal, "name: t", "name: u", 1)
	write(t, dir, "tool.yaml", "---\n"+minimal+"---\n"+second+"---\n# and nothing\n")
	specs, err := LoadDir(dir)
	if err != nil || len(specs) != 2 || specs[0].Name != "t" || specs[1].Name != "u" {
		t.Errorf("%d tools, %v", len(specs), err)
	}
	write(t, dir, "tool.yaml", minimal+"colour: red\n---\n"+second+"colour: blue\n---\n- a list\n")
	write(t, dir, "b.tool.yaml", minimal+"---\n"+minimal)
	_, err = LoadDir(dir)
	for _, want := range []string{"tool.yaml:7: colour: unknown", "tool.yaml:15: colour: unknown", "tool.yaml:17: is a list; expected a tool", `b.tool.yaml: name: "t" is declared already, in ` + filepath.Join(dir, "b.tool.yaml")} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	many := strings.Repeat("a: 1\n---\n", 10_000)
	if _, err := ParseAll([]byte(many)); !strings.Contains(fmt.Sprint(err), "more faults") || len(err.Error()) > 64<<10 {
		t.Errorf("many documents: %.200v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(complete)
	f.Add(minimal)
	f.Add(minimal + "env: &e {A: b}\nparameters: {type: object, default: *e}\n")
	f.Add("? [a, b]\n: {<<: !x 1}\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse([]byte(text))
		if _, ok := errors.AsType[Problems](err); ok {
			return
		}
		if err != nil {
			t.Fatalf("an error of another kind: %v", err)
		}
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("a loaded spec has no JSON: %v", err)
		}
		var again Spec
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatalf("a spec's JSON is not a spec: %v", err)
		}
		if again.Digest() != s.Digest() {
			t.Errorf("the digest changes on the way through JSON: %s", raw)
		}
		if _, err := New([]Spec{again}); err != nil {
			t.Errorf("a loaded spec is refused: %v", err)
		}
	})
}
