package containerd

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"

	"github.com/toolfleet/toolfleet/sandbox"
)

// pullTimeout bounds a pull with all its tries. It ends before its lease does.
const pullTimeout = leaseLife / 2

// Bounds of what an image may consist of, so that reading about it stays cheap.
const (
	maxManifest = 4 << 20
	maxChildren = 512
)

// pinned reports whether ref has a digest.
func pinned(ref string) bool { return strings.Contains(ref, "@") }

// pull asks the registry of ref for its image, and fetches it unless it is
// there. Whoever asks for the same image meanwhile waits for the same pull,
// which goes on when all of them have gone.
func (r *Runtime) pull(ctx context.Context, ref string) (images.Image, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return images.Image{}, &sandbox.ImageError{Image: ref, Fault: sandbox.ImageInvalid, Detail: oneLine(err.Error())}
	}
	if !sandbox.NamesRegistry(ref) {
		return images.Image{}, &sandbox.ImageError{
			Image: ref, Fault: sandbox.ImageAbsent,
			Detail: "it names no registry; import its archive (--images), or write the registry's host into the reference",
		}
	}
	result := r.images.flight.DoChan("pull "+named.String(), func() (any, error) {
		ctx, done := r.behind(ctx, pullTimeout)
		defer done()
		var img images.Image
		err := r.withRoom(ctx, ref, func(ctx context.Context) (err error) {
			if img, err = r.fetch(ctx, named); err != nil {
				err = pullError(ref, err)
			}
			return err
		})
		return img, err
	})
	select {
	case <-ctx.Done():
		return images.Image{}, &sandbox.ImageError{Image: ref, Fault: sandbox.ImagePending, Detail: oneLine(context.Cause(ctx).Error())}
	case res := <-result:
		if res.Err != nil {
			return images.Image{}, res.Err
		}
		return res.Val.(images.Image), nil
	}
}

// fetch asks what the name means, and gets what is missing of it. Unpacking is
// for [Runtime.furnish], so that what fails here is the registry's doing.
func (r *Runtime) fetch(ctx context.Context, named reference.Named) (images.Image, error) {
	ctx = quiet(ctx)
	resolver, began := r.registries.resolver(ctx, named), time.Now()
	name, desc, err := resolver.Resolve(ctx, named.String())
	if err != nil {
		r.pulled(began, err)
		return images.Image{}, err
	}
	if !images.IsManifestType(desc.MediaType) && !images.IsIndexType(desc.MediaType) {
		return images.Image{}, corrupt("its registry answers with %s, which is no manifest", oneLine(strconv.Quote(desc.MediaType)))
	}
	if have, err := r.client.ImageService().Get(ctx, name); err == nil && have.Target.Digest == desc.Digest {
		return have, nil
	}
	ctx, done, err := r.lease(ctx)
	if err != nil {
		return images.Image{}, err
	}
	defer done()
	parts := &fetched{Runtime: r}
	img, err := r.client.Pull(ctx, name, client.WithResolver(resolved{resolver, desc}),
		client.WithPullLabels(map[string]string{labelOrigin: OriginPulled}), client.WithImageHandlerWrapper(parts.sound))
	r.pulled(began, err)
	if err != nil && r.full() {
		parts.drop(ctx)
		return images.Image{}, &sandbox.ImageError{Fault: sandbox.ImageNoRoom, Detail: oneLine(err.Error())}
	}
	if err != nil {
		return images.Image{}, err
	}
	r.log.Info("image pulled", "image", name, "digest", desc.Digest, "took", time.Since(began).Round(time.Millisecond))
	return img.Metadata(), nil
}

// pulled tells of a pull that ended. One whose registry did not even answer is one
// that failed.
func (r *Runtime) pulled(began time.Time, err error) {
	if r.cfg.Pulled != nil {
		r.cfg.Pulled(time.Since(began), err)
	}
}

// quiet keeps the client from reporting through a logger of the whole process.
// What it says, which may be an image's words, is in the error as well.
func quiet(ctx context.Context) context.Context {
	return log.WithLogger(ctx, logrus.NewEntry(&logrus.Logger{Out: io.Discard, Formatter: new(logrus.TextFormatter), Level: logrus.PanicLevel}))
}

// resolved is a resolver that was asked already.
type resolved struct {
	remotes.Resolver
	target ocispec.Descriptor
}

func (r resolved) Resolve(_ context.Context, ref string) (string, ocispec.Descriptor, error) {
	return ref, r.target, nil
}

// fetched are the parts of one image.
type fetched struct {
	*Runtime
	mu   sync.Mutex // guards refs
	refs []string   // of what is being written, as containerd calls it
}

func (r *fetched) note(ref string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refs = append(r.refs, ref)
}

// drop removes what was written of parts that are not complete. Where there is
// room it stays for a day: the next pull goes on where this one stopped.
func (r *fetched) drop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	for _, ref := range r.refs {
		if err := wrapEnd("drop half a layer", r.client.ContentStore().Abort(ctx, ref)); err != nil {
			r.log.Warn("what was pulled stays on a full disk", "error", err)
		}
	}
}

// sound bounds what is fetched, and tells an index that has nothing for this
// machine from one that is not there. Addresses that a manifest gives for its
// layers are not followed: they are whatever its author wants our host to ask.
func (r *fetched) sound(next images.Handler) images.Handler {
	return images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		desc.URLs = nil
		if desc.Size > maxManifest && !images.IsLayerType(desc.MediaType) {
			return nil, corrupt("a manifest or configuration of %d bytes; at most %d are read", desc.Size, maxManifest)
		}
		r.note(remotes.MakeRefKey(ctx, desc))
		children, err := next.Handle(ctx, desc)
		if errdefs.IsNotFound(err) && images.IsIndexType(desc.MediaType) && r.has(ctx, desc) {
			return nil, &sandbox.ImageError{Fault: sandbox.ImagePlatform, Detail: "its index has no image for this machine"}
		}
		if err == nil && len(children) > maxChildren {
			return nil, corrupt("%d layers; at most %d are taken", len(children), maxChildren)
		}
		return children, err
	})
}

// has reports whether the content store has what desc describes.
func (r *Runtime) has(ctx context.Context, desc ocispec.Descriptor) bool {
	_, err := content.InfoProvider(r.client.ContentStore()).Info(ctx, desc.Digest)
	return err == nil
}

func corrupt(format string, args ...any) error {
	return &sandbox.ImageError{Fault: sandbox.ImageCorrupt, Detail: fmt.Sprintf(format, args...)}
}
