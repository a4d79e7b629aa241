package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
)

// defaultNamespace is containerd's namespace unless [Config] says another.
const defaultNamespace = "toolfleet"

// DaemonAddress is where the containerd of a fleet on stateDir listens, be it
// running or not.
func DaemonAddress(stateDir string) string { return pathsOf(stateDir).socket }

// Errors of an [ImageStore].
var (
	ErrNoSuchImage = errors.New("containerd: there is no such image")
	ErrImageInUse  = errors.New("containerd: the image is in use")
)

// ImageStore is the images of a containerd, for whoever is not the worker. A
// worker finds what is imported when it is first called for; nothing of its own
// is touched.
type ImageStore struct{ client *client.Client }

// OpenImages connects to the containerd at address.
func OpenImages(address string) (*ImageStore, error) {
	c, err := dial(address, defaultNamespace)
	if err != nil {
		return nil, err
	}
	return &ImageStore{c}, nil
}

// Close gives the connection up.
func (s *ImageStore) Close() error { return s.client.Close() }

// Image is one image of the store.
type Image struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	// Size is what this machine has of it, compressed, in bytes.
	Size int64 `json:"size"`
	// Platform is "linux/amd64", or "" when parts of it are missing.
	Platform string `json:"platform"`
	// Origin is [OriginPulled] or [OriginImported], or "" for what others made.
	Origin string `json:"origin"`
	// Tools are those that workers of this containerd have for it.
	Tools []string `json:"tools"`
	// Created is when it came, Used when a worker last had a use for it.
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"`
}

// Import adds the images of an OCI or Docker archive, unpacks them, and returns
// their names. After an error every name means what it meant before.
func (s *ImageStore) Import(ctx context.Context, archive io.Reader) ([]string, error) {
	ctx, done, err := s.client.WithLease(ctx, leases.WithRandomID(), leases.WithExpiration(leaseLife))
	if err != nil {
		return nil, wrap("take lease", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
		defer cancel()
		_ = done(ctx) // it expires
	}()
	return importArchive(ctx, s.client, archive, func(img images.Image) error {
		_, err := unpack(ctx, s.client, img)
		return err
	})
}

// List lists the images by name.
func (s *ImageStore) List(ctx context.Context) ([]Image, error) { return listImages(ctx, s.client) }

// Remove removes the image that ref names, and with the last image what only it
// needed. One that tools or sandboxes use is [ErrImageInUse] unless forced; what
// runs from it goes on.
func (s *ImageStore) Remove(ctx context.Context, ref string, force bool) (name string, err error) {
	running, err := runningImages(ctx, s.client)
	if err != nil {
		return "", err
	}
	img, err := find(ctx, s.client.ImageService(), ref)
	if errdefs.IsNotFound(err) {
		return "", fmt.Errorf("%w: %s", ErrNoSuchImage, oneLine(ref))
	}
	if err != nil {
		return "", wrap("look up image", err)
	}
	if why := inUse(img, running[img.Name]); why != "" && !force {
		return "", fmt.Errorf("%w: %s", ErrImageInUse, why)
	}
	return img.Name, wrap("remove image", s.client.ImageService().Delete(ctx, img.Name, images.SynchronousDelete()))
}

// Import adds the images of an OCI or Docker archive to the store, ready to
// run, and returns their names. After an error every name means what it meant
// before.
func (r *Runtime) Import(ctx context.Context, archive io.Reader) ([]string, error) {
	ctx, done, err := r.lease(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return importArchive(ctx, r.client, archive, func(img images.Image) error {
		_, err := r.ensure(ctx, img.Name, pullNever)
		return err
	})
}

// ListImages lists the images of our namespace by name.
func (r *Runtime) ListImages(ctx context.Context) ([]Image, error) { return listImages(ctx, r.client) }

var errNoImage = errors.New("containerd: import images: the archive holds no named image")

// importArchive records the images of an archive and has each made ready. When
// one cannot be, all of the names go back to what they meant: an archive that is
// no good here must not take the place of the image that tools run from. It needs
// a lease on ctx.
func importArchive(ctx context.Context, c *client.Client, archive io.Reader, ready func(images.Image) error) (names []string, err error) {
	before, err := c.ImageService().List(ctx)
	if err != nil {
		return nil, wrap("list images", err)
	}
	imported, err := c.Import(quiet(ctx), archive, client.WithSkipMissing(),
		client.WithImageLabels(map[string]string{labelOrigin: OriginImported}))
	if err != nil {
		return nil, wrap("import images", err)
	}
	if len(imported) == 0 {
		return nil, errNoImage
	}
	for _, img := range imported {
		if err := ready(img); err != nil {
			return nil, errors.Join(err, putBack(ctx, c.ImageService(), before, imported))
		}
		names = append(names, img.Name)
	}
	return names, nil
}

// putBack has the names of images mean what they meant before.
func putBack(ctx context.Context, store images.Store, before, imported []images.Image) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	var errs []error
	for _, img := range imported {
		var err error
		if i := slices.IndexFunc(before, func(old images.Image) bool { return old.Name == img.Name }); i >= 0 {
			_, err = store.Update(ctx, before[i], "target", "labels")
		} else {
			err = store.Delete(ctx, img.Name)
		}
		errs = append(errs, wrapEnd("put back image", err))
	}
	return errors.Join(errs...)
}

func listImages(ctx context.Context, c *client.Client) ([]Image, error) {
	found, err := c.ImageService().List(ctx)
	if err != nil {
		return nil, wrap("list images", err)
	}
	out := make([]Image, 0, len(found))
	for _, meta := range found {
		img := client.NewImage(c, meta)
		one := Image{
			Name: meta.Name, Digest: meta.Target.Digest.String(), Origin: meta.Labels[labelOrigin],
			Tools: toolsOf(meta), Created: meta.CreatedAt, Used: lastUse(meta),
		}
		// What is incomplete is listed as well, or nobody could remove it.
		if config, err := img.Spec(ctx); err == nil {
			one.Platform = platforms.Format(config.Platform)
			one.Size, _ = img.Size(ctx)
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
