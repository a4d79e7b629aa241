package part

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/toolfleet/toolfleet/results"
)

var workerID = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// Identity reads the worker's id from the file worker-id under state, making
// it the first time, and adds a new incarnation. The id outlives the process:
// by it a worker that was killed finds what it left behind.
func Identity(state string) (results.Worker, error) {
	name := filepath.Join(state, "worker-id")
	raw, err := os.ReadFile(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		raw = []byte("w-" + random(5) + "\n")
		if err := writeFile(name, raw); err != nil {
			return results.Worker{}, err
		}
	case err != nil:
		return results.Worker{}, err
	}
	id := strings.TrimSpace(string(raw))
	if !workerID.MatchString(id) {
		return results.Worker{}, fmt.Errorf("%s does not hold a worker id; remove the file to get a new one", name)
	}
	return results.Worker{ID: id, Incarnation: random(8)}, nil
}

// SigningKey makes sure that a key for media URLs is in the file signing-key
// under state, and returns the file's name.
func SigningKey(state string) (string, error) {
	name := filepath.Join(state, "signing-key")
	_, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		err = writeFile(name, []byte(random(32)))
	}
	return name, err
}

// writeFile writes a small file so that it is whole or not there.
func writeFile(name string, data []byte) error {
	tmp := name + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

// random returns n random bytes in hex.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails, as its documentation says
	return hex.EncodeToString(b)
}
