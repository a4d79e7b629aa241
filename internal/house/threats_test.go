package house

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	attemptName = regexp.MustCompile(`\{name: "([a-z0-9-]+)"`)
	quoted      = regexp.MustCompile("`([a-z0-9*-]+)`")
	proof       = regexp.MustCompile(`\[(\w+)\]\(([^)]+)\)`)
)

// threatModel is the page, proofColumn the column that says what proves a row.
const (
	threatModel = "docs/threat-model.md"
	proofColumn = 5
)

// What the threat model calls a proof is one: each test and each attempt is
// there. And it is complete: each attempt proves something.
func TestThreatModelIsProven(t *testing.T) {
	var attempts []string
	for _, pattern := range []string{"sandbox/sandboxtest/escape/*.go", "cmd/internal/escape/*.go", "sandbox/sandboxtest/egress/*.go", "cmd/internal/egress/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range attemptName.FindAllStringSubmatch(read(t, name), -1) {
				attempts = append(attempts, m[1])
			}
		}
	}
	if len(attempts) < 60 {
		t.Fatalf("found %d attempts; the pattern is wrong", len(attempts))
	}
	named := map[string]bool{}
	rows := 0
	for line := range strings.Lines(read(t, threatModel)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") || len(cells) != proofColumn || strings.HasPrefix(line, "| threat") || strings.HasPrefix(line, "| ---") {
			continue
		}
		rows++
		tests := proof.FindAllStringSubmatch(cells[proofColumn-1], -1)
		for _, m := range tests {
			file := filepath.Join(filepath.Dir(threatModel), m[2])
			if text := read(t, file); !strings.Contains(text, "func "+m[1]+"(") && !strings.Contains(text, `"`+m[1]+`"`) {
				t.Errorf("%s: there is no test %s in %s", threatModel, m[1], file)
			}
		}
		tried := quoted.FindAllStringSubmatch(cells[proofColumn-1], -1)
		for _, m := range tried {
			found := slices.DeleteFunc(slices.Clone(attempts), func(name string) bool {
				ok, err := filepath.Match(m[1], name)
				return err != nil || !ok
			})
			if len(found) == 0 {
				t.Errorf("%s: there is no attempt %s", threatModel, m[1])
			}
			for _, name := range found {
				named[name] = true
			}
		}
		if len(tests)+len(tried) == 0 {
			t.Errorf("%s: nothing proves %q", threatModel, strings.TrimSpace(cells[0]))
		}
	}
	if rows < 10 {
		t.Fatalf("%s: found %d threats; the pattern is wrong", threatModel, rows)
	}
	for _, name := range attempts {
		if !named[name] {
			t.Errorf("%s: the attempt %s proves nothing there", threatModel, name)
		}
	}
}
