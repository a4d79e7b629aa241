package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/singleflight"

	"github.com/toolfleet/toolfleet/sandbox"
)

// snapshotter is the only one we use: the furniture and the id mappings rely
// on overlays.
const snapshotter = "overlayfs"

// Pull policies of [Runtime.Ensure].
const (
	pullNever  = "never"
	pullAlways = "always"
)

// rootfs is an image ready to be run: what every sandbox of it has in common.
type rootfs struct {
	image  string // its name in the store
	digest digest.Digest
	// view is the key of the furnished read-only snapshot, and overlay what
	// containerd says it takes to mount it.
	view    string
	overlay mount.Mount
}

// imageCache remembers what was worked out once. What an image's name points
// to is asked anew for every start, which takes one message: somebody else may
// import another image under the same name, or delete it.
type imageCache struct {
	mu     sync.Mutex // guards ready
	ready  map[string]*rootfs
	flight singleflight.Group
}

// get returns what is known of img, if its record still holds on to it.
func (c *imageCache) get(img images.Image) *rootfs {
	c.mu.Lock()
	defer c.mu.Unlock()
	root := c.ready[cacheKey(img)]
	if root == nil || img.Labels[labelView] != root.view {
		return nil
	}
	return root
}

func cacheKey(img images.Image) string {
	return img.Name + "@" + img.Target.Digest.String()
}

func (c *imageCache) put(img images.Image, r *rootfs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// More images than one host runs; forgetting all of them costs little.
	if c.ready == nil || len(c.ready) > 1024 {
		c.ready = map[string]*rootfs{}
	}
	c.ready[cacheKey(img)] = r
}

// Ensure makes the image ready to run and returns its digest. pull is
// "missing" (also when empty), "always" or "never". An image that is missing,
// forbidden or unreachable is [sandbox.ErrImage].
func (r *Runtime) Ensure(ctx context.Context, ref, pull string) (string, error) {
	root, err := r.ensure(ctx, ref, pull)
	if err != nil {
		return "", err
	}
	return root.digest.String(), nil
}

func (r *Runtime) ensure(ctx context.Context, ref, pull string) (*rootfs, error) {
	img, err := r.find(ctx, ref)
	switch {
	case pull == pullAlways || errdefs.IsNotFound(err) && pull != pullNever:
		if img, err = r.pull(ctx, ref); err != nil {
			return nil, err
		}
	case errdefs.IsNotFound(err):
		return nil, fmt.Errorf("%w: %s is not in the local store, and pull is never", sandbox.ErrImage, ref)
	case err != nil:
		return nil, wrap("look up image", err)
	}
	if root := r.images.get(img); root != nil {
		return root, nil
	}
	// Several calls may need a new image at once; it is made ready for all of
	// them, so not on the context of the first.
	result := r.images.flight.DoChan(cacheKey(img), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), furnishTimeout)
		defer cancel()
		return r.furnish(ctx, img)
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("containerd: make image ready: %w", context.Cause(ctx))
	case res := <-result:
		if res.Err != nil {
			return nil, res.Err
		}
		return res.Val.(*rootfs), nil
	}
}

// find looks for ref in the store as it is written, as Docker would complete
// it, and for a name with a digest also by the name alone, if the image under
// that name has the digest.
func (r *Runtime) find(ctx context.Context, ref string) (images.Image, error) {
	store := r.client.ImageService()
	names := []string{ref}
	if named, err := reference.ParseDockerRef(ref); err == nil {
		names = append(names, named.String())
	}
	for _, name := range slices.Compact(names) {
		img, err := store.Get(ctx, name)
		if err == nil || !errdefs.IsNotFound(err) {
			return img, err
		}
	}
	if name, want, ok := strings.Cut(ref, "@"); ok {
		img, err := store.Get(ctx, name)
		if err == nil && img.Target.Digest.String() == want {
			return img, nil
		}
		if err != nil && !errdefs.IsNotFound(err) {
			return img, err
		}
	}
	return images.Image{}, fmt.Errorf("image %s: %w", ref, errdefs.ErrNotFound)
}

// pull fetches an image anonymously. Registries on the loopback interface may
// speak plain HTTP.
func (r *Runtime) pull(ctx context.Context, ref string) (images.Image, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return images.Image{}, fmt.Errorf("%w: %q is not an image reference: %w", sandbox.ErrImage, ref, err)
	}
	if !namesRegistry(ref) {
		return images.Image{}, fmt.Errorf("%w: %s is not in the local store and names no registry; import its archive (--images), or write the registry's host into the reference", sandbox.ErrImage, ref)
	}
	resolver := docker.NewResolver(docker.ResolverOptions{
		Hosts: docker.ConfigureDefaultRegistries(docker.WithPlainHTTP(docker.MatchLocalhost)),
	})
	// The client reports through a logger of the whole process unless the
	// context has one. What it says is in the error as well.
	ctx = log.WithLogger(ctx, logrus.NewEntry(&logrus.Logger{Out: io.Discard, Formatter: new(logrus.TextFormatter), Level: logrus.PanicLevel}))
	ctx, done, err := r.lease(ctx)
	if err != nil {
		return images.Image{}, err
	}
	defer done()
	img, err := r.client.Pull(ctx, named.String(), client.WithResolver(resolver),
		client.WithPullUnpack, client.WithPullSnapshotter(snapshotter))
	if err != nil {
		return images.Image{}, pullError(named.String(), err)
	}
	return img.Metadata(), nil
}

// namesRegistry reports whether a reference says where to pull from. Others are
// never completed with a public registry, as is the custom: a name like
// local/tool:1 belongs to somebody there, and what they put under it would run
// here in place of the image that nobody imported.
func namesRegistry(ref string) bool {
	host, _, found := strings.Cut(ref, "/")
	return found && (host == "localhost" || strings.ContainsAny(host, ".:"))
}

// pullError tells a registry's refusal, which is the image's fault, from a
// containerd that went away, which is ours.
func pullError(ref string, err error) error {
	var refused net.Error
	if errdefs.IsUnavailable(err) && !errors.As(err, &refused) {
		return wrap("pull "+ref, err)
	}
	return fmt.Errorf("%w: pull %s: %w", sandbox.ErrImage, ref, err)
}

// Import adds the images of an OCI or Docker archive to the store, ready to
// run, and returns their names.
func (r *Runtime) Import(ctx context.Context, archive io.Reader) ([]string, error) {
	ctx, done, err := r.lease(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	imported, err := r.client.Import(ctx, archive, client.WithSkipMissing())
	if err != nil {
		return nil, wrap("import images", err)
	}
	if len(imported) == 0 {
		return nil, errNoImage
	}
	var names []string
	for _, img := range imported {
		if _, err := r.ensure(ctx, img.Name, pullNever); err != nil {
			return names, err
		}
		names = append(names, img.Name)
	}
	return names, nil
}

// Image is one image of the store.
type Image struct {
	Name   string
	Digest string
}

// ListImages lists the images of our namespace by name.
func (r *Runtime) ListImages(ctx context.Context) ([]Image, error) {
	found, err := r.client.ImageService().List(ctx)
	if err != nil {
		return nil, wrap("list images", err)
	}
	var out []Image
	for _, img := range found {
		out = append(out, Image{Name: img.Name, Digest: img.Target.Digest.String()})
	}
	slices.SortFunc(out, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
