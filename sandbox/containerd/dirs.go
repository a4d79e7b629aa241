package containerd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// runBase holds everything that lives no longer than the machine is up:
// sockets, bundles, FIFOs, disks and id locks. It is short, since a path of a
// unix socket has at most 107 bytes, and everybody may walk through it, since
// a sandbox's root user is nobody special on the host.
const runBase = "/run/toolfleet"

// runDir is a directory below runBase that belongs to one daemon or one
// containerd address, named by a digest because the name must be short.
func runDir(kind, of string) string {
	sum := sha256.Sum256([]byte(of))
	return filepath.Join(runBase, kind+hex.EncodeToString(sum[:5]))
}

// mkdirWalkable makes path and its missing parents so that others may walk
// through them but not list them. The mask of the process is not asked.
func mkdirWalkable(path string) error {
	if err := os.MkdirAll(path, 0o711); err != nil {
		return fmt.Errorf("containerd: make directory: %w", err)
	}
	if err := os.Chmod(path, 0o711); err != nil {
		return fmt.Errorf("containerd: open directory for walking: %w", err)
	}
	return nil
}
