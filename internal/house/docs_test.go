package house

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/metrics"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	block   = regexp.MustCompile("(?ms)^```(go|yaml)\n(.*?)^```$")
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	metric  = regexp.MustCompile(`toolfleet_[a-z_]+`)
	target  = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
	command = regexp.MustCompile("(?m)(?:`|^(?:\\$ )?)make ([a-z0-9-]+)")
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// eachDoc visits every Markdown file.
func eachDoc(t *testing.T, visit func(name, text string)) {
	t.Helper()
	walk(t, func(name string, text []byte) {
		if strings.HasSuffix(name, ".md") {
			visit(name, string(text))
		}
	})
}

func TestLinksLeadSomewhere(t *testing.T) {
	eachDoc(t, func(name, text string) {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			file := name
			if to != "" {
				file = filepath.Join(filepath.Dir(name), to)
			}
			content, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				if info, serr := os.Stat(filepath.Join(root, file)); serr != nil || !info.IsDir() {
					t.Errorf("%s links to %s: %v", name, m[1], err)
				}
				continue
			}
			if anchor != "" && !hasAnchor(string(content), anchor) {
				t.Errorf("%s links to %s, which has no such heading", name, m[1])
			}
		}
	})
}

// hasAnchor reports whether text has a heading whose anchor, as GitHub makes
// it, is the one given.
func hasAnchor(text, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		var b strings.Builder
		for _, r := range strings.ToLower(m[1]) {
			switch {
			case r == ' ':
				b.WriteByte('-')
			case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 127:
				b.WriteRune(r)
			}
		}
		if b.String() == anchor {
			return true
		}
	}
	return false
}

func TestDocumentedTargetsExist(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	found := 0
	eachDoc(t, func(name, text string) {
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			found++
			if !targets[m[1]] {
				t.Errorf("%s says `make %s`; the Makefile has no such target", name, m[1])
			}
		}
	})
	if found == 0 {
		t.Error("no document names a make target; the pattern is wrong")
	}
}

// The table of how a call can end is one table: what ARCHITECTURE.md shows is
// what call.Ends says.
func TestEndsAreDocumented(t *testing.T) {
	var want strings.Builder
	want.WriteString("| cause | kind | status | retried by the fleet |\n| --- | --- | --- | --- |\n")
	for _, e := range call.Ends {
		kind, retried := "–", "no"
		if e.Kind != "" {
			kind = "`" + string(e.Kind) + "`"
		}
		if e.Retried {
			retried = "yes, then answered"
		}
		if e.Dead {
			retried += ", and kept as a dead letter"
		}
		fmt.Fprintf(&want, "| %s | %s | `%s` | %s |\n", e.Cause, kind, e.Status, retried)
	}
	text := read(t, "ARCHITECTURE.md")
	_, after, ok := strings.Cut(text, "| cause | kind |")
	if !ok {
		t.Fatalf("ARCHITECTURE.md has no table of ends; it should be:\n%s", want.String())
	}
	got, _, _ := strings.Cut("| cause | kind |"+after, "\n\n")
	if diff := cmp.Diff(want.String(), got+"\n"); diff != "" {
		t.Errorf("the table of ends differs from call.Ends (-want +got):\n%s", diff)
	}
}

// Code in the documentation is code: Go programs compile, tool files are valid.
func TestExamplesInDocsAreTrue(t *testing.T) {
	programs, tools := 0, 0
	eachDoc(t, func(name, text string) {
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			switch language, code := m[1], m[2]; {
			case language == "go" && strings.Contains("\n"+code, "\npackage main\n"):
				programs++
				compile(t, name, code)
			case language == "yaml" && strings.Contains(code, "kind: Tool"):
				tools++
				if _, err := catalog.Parse([]byte(code)); err != nil {
					t.Errorf("%s: its tool file is not valid: %v", name, err)
				}
			}
		}
	})
	if programs == 0 || tools == 0 {
		t.Errorf("found %d programs and %d tool files; the pattern is wrong", programs, tools)
	}
}

// compile builds a program as part of this module, and throws it away.
func compile(t *testing.T, name, code string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, file)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: its program does not compile: %v\n%s", name, err, out)
	}
}

// Metrics that somebody is told to watch are there.
func TestDocumentedMetricsExist(t *testing.T) {
	reg := prometheus.NewRegistry()
	metrics.New(reg)
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		reg.Describe(descs)
	}()
	var have strings.Builder
	for d := range descs {
		have.WriteString(d.String())
	}
	names := metric.FindAllString(read(t, "docs/operations.md"), -1)
	for _, name := range names {
		if !strings.Contains(have.String(), `"`+name+`"`) {
			t.Errorf("docs/operations.md names %s, which no part has", name)
		}
	}
	if len(names) == 0 {
		t.Error("docs/operations.md names no metric; the pattern is wrong")
	}
}

// Every top folder with Go code in it has its sentence in ARCHITECTURE.md.
func TestHouseIsDocumented(t *testing.T) {
	text := read(t, "ARCHITECTURE.md")
	seen := map[string]bool{}
	for _, p := range listed(t) {
		top, _, _ := strings.Cut(p.rel(), "/")
		if !seen[top] && !strings.Contains(text, "`"+top+"/`") {
			t.Errorf("ARCHITECTURE.md says nothing about `%s/`", top)
		}
		seen[top] = true
	}
}
