package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	chains "github.com/opencontainers/image-spec/identity"
	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/agent"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// labelView on an image's record keeps its furnished snapshot from being
// collected, for as long as the image is there.
const labelView = "containerd.io/gc.ref.snapshot." + snapshotter + "/toolfleet"

// furnishTimeout bounds the making of a root filesystem.
const furnishTimeout = 5 * time.Minute

// furnish unpacks the image, puts the furniture on top and hangs the result on
// the image's record.
func (r *Runtime) furnish(ctx context.Context, meta images.Image) (*rootfs, error) {
	ctx, done, err := r.lease(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	chain, err := unpack(ctx, r.client, meta)
	if err != nil {
		return nil, err
	}
	root := &rootfs{
		image: meta.Name, digest: meta.Target.Digest,
		view: "toolfleet-view-" + chain.Encoded()[:16] + "-" + r.furnitureDigest()[:16],
	}
	if root.overlay, err = r.view(ctx, chain, root.view); err != nil {
		return nil, err
	}
	meta.Labels = map[string]string{labelView: root.view}
	if _, err := r.client.ImageService().Update(ctx, meta, "labels."+labelView); err != nil {
		return nil, wrap("hold on to root filesystem", err)
	}
	r.images.put(meta, root)
	return root, nil
}

// unpack makes snapshots of the image's layers, unless they are there, and
// returns the name of the last.
func unpack(ctx context.Context, c *client.Client, meta images.Image) (digest.Digest, error) {
	img := client.NewImage(c, meta)
	if err := runsHere(ctx, img); err != nil {
		return "", err
	}
	if err := img.Unpack(quiet(ctx), snapshotter); err != nil {
		return "", unpackError("unpack", meta.Name, err)
	}
	layers, err := img.RootFS(ctx)
	if err != nil {
		return "", unpackError("read", meta.Name, err)
	}
	if len(layers) == 0 {
		return "", &sandbox.ImageError{Image: meta.Name, Fault: sandbox.ImageCorrupt, Detail: "it has no layers"}
	}
	return chains.ChainID(layers), nil
}

// runsHere refuses an image whose configuration says that it is made for other
// machines. A registry's index does so earlier, but a manifest may stand alone.
func runsHere(ctx context.Context, img client.Image) error {
	config, err := img.Spec(ctx)
	if err != nil {
		return unpackError("read", img.Name(), err)
	}
	if config.Architecture == "" || img.Platform().Match(config.Platform) {
		return nil // one that does not say is tried
	}
	return &sandbox.ImageError{
		Image: img.Name(), Fault: sandbox.ImagePlatform,
		Detail: oneLine("it is for " + config.OS + "/" + config.Architecture),
	}
}

// view returns the mounts of the furnished snapshot, which it makes if need be.
func (r *Runtime) view(ctx context.Context, chain digest.Digest, key string) (mount.Mount, error) {
	sn := r.client.SnapshotService(snapshotter)
	mounts, err := sn.Mounts(ctx, key)
	if errdefs.IsNotFound(err) {
		layer := key + "-layer"
		if err := r.furnishLayer(ctx, chain, layer); err != nil {
			return mount.Mount{}, err
		}
		mounts, err = sn.View(ctx, key, layer)
	}
	if errdefs.IsAlreadyExists(err) { // another worker was faster
		mounts, err = sn.Mounts(ctx, key)
	}
	if err != nil {
		return mount.Mount{}, wrap("view root filesystem", err)
	}
	if len(mounts) != 1 || mounts[0].Type != "overlay" {
		return mount.Mount{}, fmt.Errorf("containerd: the snapshotter gave no overlay but %v", mounts)
	}
	return mounts[0], nil
}

// furnishLayer commits a snapshot of the furniture on top of the image.
func (r *Runtime) furnishLayer(ctx context.Context, chain digest.Digest, name string) error {
	sn := r.client.SnapshotService(snapshotter)
	if _, err := sn.Stat(ctx, name); err == nil {
		return nil
	}
	key := fmt.Sprintf("%s-%d-%d", name, os.Getpid(), time.Now().UnixNano())
	mounts, err := sn.Prepare(ctx, key, chain.String())
	if err != nil {
		return wrap("prepare root filesystem", err)
	}
	err = r.withMounted(mounts, func(dir string) error { return furniture(dir, r.agent) })
	if err == nil {
		err = sn.Commit(ctx, name, key)
	}
	if err != nil {
		_ = sn.Remove(context.WithoutCancel(ctx), key) // else the collector does
	}
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	return wrap("furnish root filesystem", err)
}

// withMounted calls fn with a directory where mounts are mounted. Its parent is
// locked meanwhile, which tells a sweep that somebody alive is at work there.
func (r *Runtime) withMounted(mounts []mount.Mount, fn func(dir string) error) (err error) {
	parent, err := os.MkdirTemp(r.dir, furnishPrefix)
	if err != nil {
		return err
	}
	lock, err := lockDir(parent)
	if err != nil {
		return errors.Join(err, os.Remove(parent))
	}
	defer func() { err = errors.Join(err, os.Remove(parent), lock.Close()) }()
	dir := filepath.Join(parent, "root")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	if err := mount.All(mounts, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mount.UnmountAll(dir, 0)) }()
	return fn(dir)
}

const furnishPrefix = "furnish-"

// lockDir takes a lock on a directory, or fails if somebody has it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweepFurnishing removes what somebody left who died while furnishing.
func (r *Runtime) sweepFurnishing() error {
	var errs []error
	for _, name := range childDirs(r.dir) {
		if !strings.HasPrefix(name, furnishPrefix) {
			continue
		}
		dir := filepath.Join(r.dir, name)
		lock, err := lockDir(dir)
		if err != nil {
			continue // at work, or gone
		}
		if err = unmountBelow(dir); err == nil {
			err = os.RemoveAll(dir)
		}
		errs = append(errs, err, lock.Close())
	}
	return errors.Join(errs...)
}

// mountPoints must be there before the start, since the root is read-only.
var mountPoints = []string{"proc", "sys", "dev/shm", "tmp", "workspace", "home/tool", wire.DirSecrets[1:], path.Dir(agentInside)[1:], agent.EmptyDir[1:]}

// programsFor are the programs that a sandbox needs besides the tool's.
func programsFor(agentProgram []byte) map[string][]byte {
	return map[string][]byte{
		agentInside:         agentProgram,
		agent.InitPath:      agent.Init(),
		agent.MountProcPath: agent.MountProc(),
	}
}

// furnitureDigest names what the furniture consists of.
func (r *Runtime) furnitureDigest() string {
	h := sha256.New()
	for _, program := range [][]byte{r.agent, agent.Init(), agent.MountProc()} {
		_, _ = h.Write(program)
	}
	_, _ = io.WriteString(h, strings.Join(mountPoints, " ")+resolvConf)
	return hex.EncodeToString(h.Sum(nil))
}

// furniture writes the mount points and the programs into an image's root. The
// image is hostile: a link where a directory should be must lead nowhere
// outside, and not stay.
func furniture(dir string, agentProgram []byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, name := range mountPoints {
		if err := realDir(root, name); err != nil {
			return fmt.Errorf("make /%s: %w", name, err)
		}
	}
	if err := nameServers(root); err != nil {
		return err
	}
	for name, program := range programsFor(agentProgram) {
		name = name[1:]
		if err := root.RemoveAll(name); err != nil {
			return err
		}
		if err := root.WriteFile(name, program, 0o555); err != nil {
			return err
		}
		if err := root.Chmod(name, 0o555); err != nil { // whatever the mask was
			return err
		}
	}
	return nil
}

// realDir makes every part of name a directory and no link.
func realDir(root *os.Root, name string) error {
	if parent := path.Dir(name); parent != "." {
		if err := realDir(root, parent); err != nil {
			return err
		}
	}
	info, err := root.Lstat(name)
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		err = root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := root.Mkdir(name, 0o755); err != nil {
		return err
	}
	return root.Chmod(name, 0o755)
}

// resolvConf has programs ask the sandbox's own loopback for names. What an image
// brings is a leftover of the machine that it was made on. In a sandbox without a
// network nobody listens there, and a question is refused at once.
const resolvConf = "nameserver 127.0.0.1\n"

func nameServers(root *os.Root) error {
	const name = "etc/resolv.conf"
	if err := realDir(root, path.Dir(name)); err != nil {
		return fmt.Errorf("make /etc: %w", err)
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	if err := root.WriteFile(name, []byte(resolvConf), 0o444); err != nil {
		return err
	}
	return root.Chmod(name, 0o444)
}
