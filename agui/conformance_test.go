package agui_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/agui-conformance.md")

const (
	repository  = ".."
	conformance = repository + "/docs/agui-conformance.md"
)

// rule is one line of testdata/conformance.txt.
type rule struct{ id, force, does, unbound string }

// proof is a test that carries a rule's id in its name.
type proof struct{ name, file string }

// Every rule has a test that bears its name, or a reason why it binds no fleet;
// docs/agui-conformance.md says which. After a change to either:
//
//	go test ./agui -run TestConformanceIsDocumented -update
func TestConformanceIsDocumented(t *testing.T) {
	rules, proofs := readRules(t), findProofs(t)
	var want bytes.Buffer
	want.WriteString(preamble)
	for _, r := range rules {
		tests := proofs[r.id]
		delete(proofs, r.id)
		switch {
		case len(tests) == 0 && r.unbound == "":
			t.Errorf("%s has neither a test nor a reason", r.id)
		case len(tests) > 0 && r.unbound != "":
			t.Errorf("%s is said to bind no fleet and has the test %s", r.id, tests[0].name)
		}
		proven := r.unbound
		for i, p := range tests {
			if i > 0 {
				proven += "<br>"
			}
			proven += fmt.Sprintf("[%s](../%s)", p.name, p.file)
		}
		fmt.Fprintf(&want, "| %s | %s | %s | %s |\n", r.id, r.force, r.does, proven)
	}
	for id, tests := range proofs {
		t.Errorf("%s proves %s, which is no rule", tests[0].name, id)
	}
	if t.Failed() {
		return
	}
	if *update {
		if err := os.WriteFile(conformance, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(conformance)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("%s is not up to date; run this test with -update (-want +got):\n%s", conformance, diff)
	}
}

const preamble = `# AG-UI conformance

Made from the tests by ` + "`go test ./agui -run TestConformanceIsDocumented -update`" + `; do not edit it by hand.

Each rule of AG-UI 1.0 for tool calls, what the fleet does about it, and the
tests that prove it, or the reason why it does not bind a fleet. TC-01 to TC-31
are the statements with a keyword on the protocol's page about tool calls, in
its order; TC-32 to TC-55 are stated there without one; LX-01 to LX-18 are
linked pages' rules for the same code.

| rule | force | the fleet | proven by |
| --- | --- | --- | --- |
`

// readRules reads the table, which has 55 and 18 rules in their order.
func readRules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile("testdata/conformance.txt")
	if err != nil {
		t.Fatal(err)
	}
	forces := []string{"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY", "OPTIONAL", "stated", "linked"}
	var ids, want []string
	var rules []rule
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, " | ")
		if len(cells) < 3 || len(cells) > 4 || slices.Contains(cells, "") || !slices.Contains(forces, cells[1]) {
			t.Fatalf("not a rule: %s", line)
		}
		r := rule{id: cells[0], force: cells[1], does: cells[2]}
		if len(cells) == 4 {
			r.unbound = "does not bind a fleet: " + cells[3]
		}
		rules, ids = append(rules, r), append(ids, r.id)
	}
	for i := range 55 {
		want = append(want, fmt.Sprintf("TC-%02d", i+1))
	}
	for i := range 18 {
		want = append(want, fmt.Sprintf("LX-%02d", i+1))
	}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Fatalf("rules (-want +got):\n%s", diff)
	}
	return rules
}

var provesRule = regexp.MustCompile(`^Test(TC|LX)(\d\d)\p{Lu}`)

// findProofs finds the tests of the repository that prove a rule, by rule,
// sorted by file and name.
func findProofs(t *testing.T) map[string][]proof {
	t.Helper()
	proofs := map[string][]proof{}
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || path != repository && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(repository, path)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil {
				continue
			}
			if m := provesRule.FindStringSubmatch(f.Name.Name); m != nil {
				id := m[1] + "-" + m[2]
				proofs[id] = append(proofs[id], proof{f.Name.Name, filepath.ToSlash(rel)})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tests := range proofs {
		slices.SortFunc(tests, func(a, b proof) int {
			return strings.Compare(a.file+"\x00"+a.name, b.file+"\x00"+b.name)
		})
	}
	return proofs
}
