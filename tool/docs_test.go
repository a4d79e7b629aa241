package tool_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The page for beginners shows what its program really says of itself, and what
// it answers.
func TestFirstToolIsTrue(t *testing.T) {
	page, err := os.ReadFile("../docs/first-tool.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := func(language string) string {
		m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(page)
		if m == nil {
			t.Fatalf("the page has no block of %s", language)
		}
		return string(m[1])
	}
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "average")
	if err := os.WriteFile(source, []byte(shown("go")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	described, err := exec.CommandContext(t.Context(), binary, "--describe").Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(shown("yaml"), string(described)); diff != "" {
		t.Errorf("the tool file (-shown +described):\n%s", diff)
	}
	question, answer, _ := strings.Cut(shown("console"), "\n")
	_, arguments, _ := strings.Cut(question, "'")
	arguments, _, _ = strings.Cut(arguments, "'")
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Stdin = strings.NewReader(arguments)
	printed, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(answer, string(printed)); diff != "" {
		t.Errorf("the answer (-shown +printed):\n%s", diff)
	}
}
