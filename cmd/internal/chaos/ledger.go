package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// witness is what the ledger says about one call: how often its tool began, and
// how often it came to its end.
type witness struct{ starts, ends int }

// makeLedger makes the directory that every sandbox is shown, with a file in it
// that everybody may append to, whoever a sandbox's users are on the host.
func makeLedger(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := filepath.Join(dir, "notes")
	if err := os.WriteFile(name, nil, 0o666); err != nil {
		return err
	}
	return os.Chmod(name, 0o666) // whatever the mask is
}

// readLedger reads who has run. A line that cannot be read is an error: the
// witness would be no witness.
func readLedger(dir string) (map[string]witness, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "notes"))
	if err != nil {
		return nil, err
	}
	ledger := map[string]witness{}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] != "start" && f[0] != "end" {
			return nil, fmt.Errorf("chaos: the ledger says %q", line)
		}
		w := ledger[f[1]]
		if f[0] == "start" {
			w.starts++
		} else {
			w.ends++
		}
		ledger[f[1]] = w
	}
	return ledger, nil
}
