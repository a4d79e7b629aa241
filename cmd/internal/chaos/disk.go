package chaos

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// disk is a small file system that can be filled.
type disk struct{ dir string }

// diskSize is room for the whole run, and little enough to be filled at once.
const diskSize = 512 << 20

func makeDisk(dir string) (*disk, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("toolfleet-chaos", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("size=%d", diskSize)); err != nil {
		return nil, fmt.Errorf("chaos: mount a small disk: %w", err)
	}
	return &disk{dir: dir}, nil
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// fill leaves no room.
func (d *disk) fill() error {
	f, err := os.Create(d.filler())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, zeros{})
	if errors.Is(err, unix.ENOSPC) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// free gives the room back.
func (d *disk) free() error { return os.Remove(d.filler()) }

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

func (d *disk) remove() error { return unix.Unmount(d.dir, unix.MNT_DETACH) }
