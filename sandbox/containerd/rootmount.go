package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
)

// rootMount is the read-only root file system of one sandbox, mounted on the
// host at path: the image's layers with their ids mapped into the sandbox's
// range, so that nothing is copied or changed on the disk.
//
// containerd's shim could mount it as well, but starts a process for each
// sandbox that has no use than to own the mapping; see [userNamespaces].
type rootMount struct{ path string }

// mountRoot mounts shared, the overlay of an image, for the ids of userns.
func mountRoot(path string, shared mount.Mount, userns *os.File) (_ *rootMount, err error) {
	r := &rootMount{path: path}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.remove())
		}
	}()
	for _, dir := range []string{r.path, r.layers()} {
		if err := mkdirWalkable(dir); err != nil {
			return nil, err
		}
	}
	common, options := relocate(shared.Options, r.layers())
	if common == "" {
		return nil, fmt.Errorf("containerd: mount root: no layers in %v", shared.Options)
	}
	// An overlay cannot be mapped, but what lies below it can.
	err = mount.IDMapMountWithAttrs(common, r.layers(), int(userns.Fd()), unix.MOUNT_ATTR_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("containerd: mount root: %w", err)
	}
	// A layer may hold device nodes. The cgroup refuses them too, but here they
	// are none at all.
	overlay := mount.Mount{Type: shared.Type, Source: shared.Source, Options: append(options, "nodev")}
	if err := overlay.Mount(r.path); err != nil {
		return nil, fmt.Errorf("containerd: mount root: %w", err)
	}
	// The overlay keeps what it needs of it.
	return r, detach(r.layers())
}

// layers is where the mapped layers are mounted while the overlay is made.
func (r *rootMount) layers() string { return r.path + "-layers" }

// remove unmounts the root.
func (r *rootMount) remove() error { return errors.Join(detach(r.layers()), detach(r.path)) }

// relocate returns the directory that all layers of an overlay lie in, and its
// options with the layers as they are found below dir.
func relocate(options []string, dir string) (common string, moved []string) {
	for _, o := range options {
		list, ok := strings.CutPrefix(o, "lowerdir=")
		if !ok {
			moved = append(moved, o)
			continue
		}
		layers := strings.Split(list, ":")
		common = filepath.Dir(layers[0])
		for !allBelow(layers, common) {
			common = filepath.Dir(common)
		}
		for n, layer := range layers {
			layers[n] = dir + strings.TrimPrefix(layer, common)
		}
		moved = append(moved, "lowerdir="+strings.Join(layers, ":"))
	}
	return common, moved
}

func allBelow(paths []string, dir string) bool {
	for _, p := range paths {
		if !strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") {
			return false
		}
	}
	return true
}

// detach unmounts what is mounted at path, if anything is, and removes the
// directory.
func detach(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil &&
		!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("containerd: unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("containerd: remove mount point: %w", err)
	}
	return nil
}

// userNamespaces keeps one user namespace for each range of ids that this
// worker has used, to map mounts with. The kernel makes one only with a
// process in it, which is gone at once; the namespace stays as long as its
// file. There are at most as many as sandboxes were on the machine at one time,
// since the lowest free range is taken.
type userNamespaces struct {
	mu    sync.Mutex
	files map[uint32]*os.File // by the base of the range
}

// of returns the namespace of ids. It belongs to u.
func (u *userNamespaces) of(ids *idRange) (*os.File, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f := u.files[ids.base]; f != nil {
		return f, nil
	}
	mapping := fmt.Sprintf("0:%d:%d", ids.base, rangeSize)
	f, err := mount.GetUsernsFD(mapping, mapping)
	if err != nil {
		return nil, fmt.Errorf("containerd: make user namespace: %w", err)
	}
	if u.files == nil {
		u.files = map[uint32]*os.File{}
	}
	u.files[ids.base] = f
	return f, nil
}

func (u *userNamespaces) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.files {
		_ = f.Close()
	}
	clear(u.files)
}
