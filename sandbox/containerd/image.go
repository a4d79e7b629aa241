package containerd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
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
	mu     sync.Mutex // guards ready and used
	ready  map[string]*rootfs
	used   map[string]time.Time // when each image of the store was last asked for
	flight singleflight.Group
}

// maxReady is more images than one host runs; forgetting all of them costs
// little.
const maxReady = 1024

// get notes that img is used, and returns what is known of img, if its record still holds on to it.
func (c *imageCache) get(img images.Image) *rootfs {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used == nil || len(c.used) > maxReady {
		c.used = map[string]time.Time{}
	}
	c.used[img.Name] = time.Now()
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
	if c.ready == nil || len(c.ready) > maxReady {
		c.ready = map[string]*rootfs{}
	}
	c.ready[cacheKey(img)] = r
}

// Ensure makes the image ready to run and returns its digest. pull is
// "missing" (also when empty): a registry is asked when the image is not there;
// "always": the registry is asked whether the name has come to mean another
// image, unless the reference has a digest, which means one image for ever; or
// "never". An image that cannot be had is a [sandbox.ImageError].
func (r *Runtime) Ensure(ctx context.Context, ref, pull string) (string, error) {
	root, err := r.ensure(ctx, ref, pull)
	if err != nil {
		return "", err
	}
	return root.digest.String(), nil
}

func (r *Runtime) ensure(ctx context.Context, ref, pull string) (*rootfs, error) {
	img, err := find(ctx, r.client.ImageService(), ref)
	switch {
	case err == nil && (pull != pullAlways || pinned(ref)):
	case err != nil && !errdefs.IsNotFound(err):
		return nil, wrap("look up image", err)
	case pull == pullNever:
		return nil, &sandbox.ImageError{Image: ref, Fault: sandbox.ImageAbsent, Detail: "pull is never"}
	default:
		if img, err = r.pull(ctx, ref); err != nil {
			return nil, err
		}
	}
	if root := r.images.get(img); root != nil {
		return root, nil
	}
	// Several calls may need a new image at once; it is made ready for all of
	// them, so not on the context of the first.
	result := r.images.flight.DoChan(cacheKey(img), func() (any, error) {
		ctx, done := r.behind(ctx, furnishTimeout)
		defer done()
		var root *rootfs
		err := r.withRoom(ctx, ref, func(ctx context.Context) (err error) {
			root, err = r.furnish(ctx, img)
			return err
		})
		return root, err
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

// behind is a context for work that several callers wait for: it does not end
// with the first of them, but after timeout, or when the runtime is closed,
// which waits for done.
func (r *Runtime) behind(ctx context.Context, timeout time.Duration) (_ context.Context, done func()) {
	r.work.Add(1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	ended := make(chan struct{})
	go func() {
		defer r.work.Done()
		select {
		case <-r.closing:
			cancel()
			<-ended
		case <-ended:
		}
	}()
	return ctx, func() { cancel(); close(ended) }
}

// find looks for ref in the store as it is written, as Docker would complete
// it, and for a name with a digest also by the name alone, if the image under
// that name has the digest.
func find(ctx context.Context, store images.Store, ref string) (images.Image, error) {
	_, want, _ := strings.Cut(ref, "@")
	for _, name := range namesOf(ref) {
		img, err := store.Get(ctx, name)
		if err != nil && !errdefs.IsNotFound(err) || err == nil && (want == "" || img.Target.Digest.String() == want) {
			return img, err
		}
	}
	return images.Image{}, fmt.Errorf("image %s: %w", ref, errdefs.ErrNotFound)
}

// namesOf are the names in the store that ref may mean.
func namesOf(ref string) []string {
	names := []string{ref}
	add := func(name string) {
		if named, err := reference.ParseDockerRef(name); err == nil && !slices.Contains(names, named.String()) {
			names = append(names, named.String())
		}
	}
	add(ref)
	if name, _, ok := strings.Cut(ref, "@"); ok {
		names = append(names, name)
		add(name)
	}
	return names
}
