package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The doctor judges the state directory as `up` would, whatever else is
// missing, and leaves nothing behind.
func TestCheckState(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for state, want := range map[string]string{
		dir:                                 "",
		filepath.Join(dir, "new", "deeper"): "",
		file:                                "not a directory",
		filepath.Join(file, "below"):        "not a directory",
		"/proc/toolfleet":                   "with --state",
	} {
		err := checkState(state)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", state, err, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
