package house

import (
	"path/filepath"
	"strings"
	"testing"
)

// The page of guarantees has a proof in each row, and each proof is there.
func TestGuaranteesAreProven(t *testing.T) {
	const page = "docs/guarantees.md"
	rows := 0
	for line := range strings.Lines(read(t, page)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || strings.Contains(line, "| proof |") {
			continue
		}
		rows++
		proofs := proof.FindAllStringSubmatch(line, -1)
		if len(proofs) == 0 {
			t.Errorf("%s: nothing proves %q", page, strings.TrimSpace(line))
		}
		for _, m := range proofs {
			file := filepath.Join(filepath.Dir(page), m[2])
			if !strings.Contains(read(t, file), "func "+m[1]+"(") {
				t.Errorf("%s: there is no test %s in %s", page, m[1], file)
			}
		}
	}
	if rows < 20 {
		t.Fatalf("%s: found %d rows; the pattern is wrong", page, rows)
	}
}
