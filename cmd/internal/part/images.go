package part

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/image"
)

// ImagesConfig says where a worker has its images from. The tags are kong's.
type ImagesConfig struct {
	Images         string        `help:"Directory of images (OCI archives or docker save's, *.tar) to import at the start." env:"TOOLFLEET_IMAGES"`
	RegistryConfig string        `help:"Docker's config.json with credentials for registries; default: the one in $DOCKER_CONFIG. Without either, pulls are anonymous." env:"TOOLFLEET_REGISTRY_CONFIG"`
	DockerConfig   string        `hidden:"" env:"DOCKER_CONFIG"`
	RegistryHTTP   []string      `name:"registry-http" help:"A registry (host or host:port) that speaks plain HTTP; those on the loopback interface may anyway. May be repeated." env:"TOOLFLEET_REGISTRY_HTTP"`
	RegistryCA     string        `name:"registry-ca" help:"PEM file with certificates to trust for registries, beside the machine's own." env:"TOOLFLEET_REGISTRY_CA"`
	ImagesUnused   time.Duration `help:"After how long without use an image that was pulled is removed." default:"168h" env:"TOOLFLEET_IMAGES_UNUSED"`
}

// registries is how a worker pulls. A file that is named must be there; Docker's
// own directory may have none.
func (c ImagesConfig) registries() containerd.Registries {
	r := containerd.Registries{Config: c.RegistryConfig, PlainHTTP: c.RegistryHTTP, CA: c.RegistryCA}
	if r.Config == "" && c.DockerConfig != "" {
		file := filepath.Join(c.DockerConfig, "config.json")
		if _, err := os.Stat(file); err == nil {
			r.Config = file
		}
	}
	return r
}

const (
	// pullsAtOnce bounds the pulls that no call waits for yet.
	pullsAtOnce = 3
	// firstPulls is how long a new worker takes no calls for the sake of its
	// images. Later it does, whatever is missing: other tools have theirs, and a
	// registry that is away must not be the end of a fleet. The pulls go on.
	firstPulls = time.Minute
	// keepInterval is how often the images are looked over for what nobody uses.
	keepInterval = 10 * time.Minute
)

// imageStore is what images does with a runtime. *containerd.Runtime is one.
type imageStore interface {
	Ensure(ctx context.Context, ref, pull string) (digest string, err error)
	KeepImages(ctx context.Context, uses map[string][]string, unused time.Duration) (removed []string, err error)
}

// images has the images of the worker's tools at hand.
type images struct {
	runtime imageStore
	unused  time.Duration
	logger  *slog.Logger

	ready atomic.Bool // whether the first pulls have ended, see firstPulls

	mu    sync.Mutex          // guards what follows
	tools map[string][]string // names of tools, by image
	asked map[want]string     // what tools want that was asked for: "" is ready, else why not
}

// want is an image and how it is had.
type want struct{ ref, pull string }

// Prepull has the images of tools ready to run: it pulls what their policies ask
// for and was not ready before, a few at a time, and returns when it is done. An
// image that cannot be had is told in the log, once for each reason, and each
// call of its tools tries again. From now on the images of these tools are kept,
// and no longer those of the tools before.
func (i *images) Prepull(ctx context.Context, tools []catalog.Spec) {
	users, asked, missing := map[string][]string{}, map[want]string{}, map[want]bool{}
	i.mu.Lock()
	for n := range tools {
		w := want{tools[n].Image, tools[n].Pull}
		users[w.ref] = append(users[w.ref], tools[n].Name)
		why, known := i.asked[w]
		if known {
			asked[w] = why
		}
		if !known || why != "" {
			missing[w] = true
		}
	}
	i.tools, i.asked = users, asked
	i.mu.Unlock()

	var g errgroup.Group
	g.SetLimit(pullsAtOnce)
	for w := range missing {
		g.Go(func() error { i.prepull(ctx, w, users[w.ref]); return nil })
	}
	_ = g.Wait()
	if ctx.Err() == nil {
		i.ready.Store(true)
		i.keep(ctx)
	}
}

// prepull has one image ready, and tells what is new about it.
func (i *images) prepull(ctx context.Context, w want, users []string) {
	began := time.Now()
	digest, err := i.runtime.Ensure(ctx, w.ref, w.pull)
	if err != nil && ctx.Err() != nil {
		return
	}
	why := ""
	if err != nil {
		why = err.Error()
	}
	i.mu.Lock()
	was := i.asked[w]
	i.asked[w] = why
	i.mu.Unlock()
	if err == nil {
		i.logger.Debug("image ready", "image", w.ref, "digest", digest, "took", time.Since(began))
	} else if why != was {
		i.logger.Warn("an image is not ready; calls of its tools try again", "image", w.ref, "tools", strings.Join(users, " "), "error", err)
	}
}

// run ends the wait for the first pulls and keeps the house, until ctx is done.
func (i *images) run(ctx context.Context) error {
	first := time.NewTimer(firstPulls)
	defer first.Stop()
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-first.C:
			if !i.ready.Swap(true) {
				i.logger.Warn("calls are taken though images are still being pulled")
			}
		case <-tick.C:
			i.keep(ctx)
		}
	}
}

// keep marks the images that are used and removes what was pulled and is not.
func (i *images) keep(ctx context.Context) {
	i.mu.Lock()
	tools := i.tools
	i.mu.Unlock()
	removed, err := i.runtime.KeepImages(ctx, tools, i.unused)
	if len(removed) > 0 {
		i.logger.Info("removed images that nothing used", "images", strings.Join(removed, " "), "unused", i.unused)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, sandbox.ErrUnavailable) {
		i.logger.Warn("look over the images", "error", err)
	}
}

// importImages imports every *.tar in a directory.
func importImages(ctx context.Context, r *containerd.Runtime, dir string, logger *slog.Logger) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("no OCI archive (*.tar) in " + dir)
	}
	for _, file := range files {
		if imported(ctx, r, file) {
			logger.Debug("image imported before", "file", filepath.Base(file))
			continue
		}
		archive, err := image.Open(file, "")
		if err != nil {
			return err
		}
		refs, err := r.Import(ctx, archive)
		if err = errors.Join(err, archive.Close()); err != nil {
			return fmt.Errorf("import %s: %w", file, err)
		}
		logger.Info("image imported", "file", filepath.Base(file), "refs", strings.Join(refs, " "))
	}
	return nil
}

// imported reports whether all that the archive says it holds is ready to run
// already. A worker that starts again asks this of its archives: reading them
// whole takes a second for each few hundred megabytes.
func imported(ctx context.Context, r *containerd.Runtime, file string) bool {
	index, err := image.Index(file)
	for name, digest := range index {
		if ready, err := r.Ensure(ctx, name, "never"); err != nil || ready != digest {
			return false
		}
	}
	return err == nil && len(index) > 0
}
