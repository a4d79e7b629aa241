package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// toolID is the user and group of a tool inside its sandbox.
const toolID = 65532

// place is one writable directory of a sandbox.
type place struct {
	name, target string
	mode         os.FileMode
	options      []string
}

// places are the writable directories. They share one tmpfs, so that the disk
// limit is the sum over all of them. OCI runtimes can only mount a tmpfs for
// each, with a limit each; so the tmpfs is mounted on the host and bound.
var places = []place{
	{"tmp", "/tmp", 0o777 | os.ModeSticky, nil},
	{"workspace", "/workspace", 0o755, nil},
	{"home", "/home/tool", 0o755, nil},
	{"shm", "/dev/shm", 0o777 | os.ModeSticky, []string{"noexec"}},
}

// out is where a tool leaves files: a directory of a place, and no mount.
var out = place{name: "workspace/" + wire.DirOut, mode: 0o755}

// disk is the writable space of one sandbox, mounted on the host at path.
type disk struct{ path string }

// makeDisk mounts a tmpfs of size bytes for a sandbox whose ids begin at base.
//
// Its pages are charged to the cgroup of whoever touches them, the tool. The
// inodes are bounded too, since a million empty files fill no page but cost
// kernel memory. nodev and nosuid hold in the sandbox as well.
func makeDisk(path string, size int64, base uint32) (*disk, error) {
	d := &disk{path: path}
	if err := mkdirWalkable(path); err != nil {
		return nil, err
	}
	inodes := max(1024, size/4096)
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=711", size, inodes)
	if err := unix.Mount("toolfleet", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		_ = os.Remove(path)
		return nil, fmt.Errorf("containerd: mount disk: %w", err)
	}
	if err := d.furnish(base); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	return d, nil
}

func (d *disk) furnish(base uint32) error {
	owner := int(base) + toolID
	for _, p := range append(slices.Clone(places), out) {
		path := filepath.Join(d.path, p.name)
		if err := os.Mkdir(path, 0o700); err != nil {
			return fmt.Errorf("containerd: make disk: %w", err)
		}
		if err := os.Chown(path, owner, owner); err != nil {
			return fmt.Errorf("containerd: make disk: %w", err)
		}
		if err := os.Chmod(path, p.mode); err != nil {
			return fmt.Errorf("containerd: make disk: %w", err)
		}
	}
	return nil
}

func (d *disk) mounts() []specs.Mount {
	var mounts []specs.Mount
	for _, p := range places {
		mounts = append(mounts, specs.Mount{
			Destination: p.target, Type: "bind", Source: filepath.Join(d.path, p.name),
			Options: append([]string{"bind", "nosuid", "nodev"}, p.options...),
		})
	}
	return mounts
}

// remove unmounts the disk; its contents go with it.
func (d *disk) remove() error { return detach(d.path) }
