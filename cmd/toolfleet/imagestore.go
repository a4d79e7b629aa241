package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/image"
)

// ImageStoreFlags say where images are kept.
type ImageStoreFlags struct {
	Containerd string `help:"Address of the containerd with the images; default: the one of the fleet on --state." env:"TOOLFLEET_CONTAINERD"`
	State      string `help:"State directory of the fleet." default:"/var/lib/toolfleet" env:"TOOLFLEET_STATE"`
}

// with calls do with the store, while it is open.
func (f *ImageStoreFlags) with(do func(*containerd.ImageStore) error) (err error) {
	address := f.Containerd
	if address == "" {
		address = containerd.DaemonAddress(f.State)
	}
	if _, err := os.Stat(address); err != nil {
		return fmt.Errorf("%w: no containerd listens at %s; start a fleet, or name its --state or --containerd", client.ErrUnreachable, address)
	}
	store, err := containerd.OpenImages(address)
	if err == nil {
		defer func() { err = errors.Join(err, store.Close()) }()
		err = do(store)
	}
	if errors.Is(err, sandbox.ErrUnavailable) {
		return fmt.Errorf("%w: %w", client.ErrUnreachable, err)
	}
	return err
}

// ImageImportCmd takes archives and layouts.
type ImageImportCmd struct {
	Archive []string `arg:"" help:"OCI layouts, each a directory or a tar, or files that docker save wrote; a tar may be gzipped." type:"path"`
	Tag     string   `short:"t" help:"Name for the one image of the one archive; default: the names it has." placeholder:"local/NAME:TAG"`
	ImageStoreFlags
}

// Run imports and prints the names.
func (c *ImageImportCmd) Run(ctx context.Context, term *terminal) error {
	if c.Tag != "" && len(c.Archive) > 1 {
		return usagef("one --tag cannot name the images of %d archives; import them one by one", len(c.Archive))
	}
	return c.with(func(store *containerd.ImageStore) error {
		for _, path := range c.Archive {
			archive, err := image.Open(path, c.Tag)
			if err != nil {
				return err
			}
			names, err := store.Import(ctx, archive)
			if err = errors.Join(err, archive.Close()); err != nil {
				return err
			}
			for _, name := range names {
				fmt.Fprintln(term.out, oneLine(name))
			}
		}
		return nil
	})
}

// ImageListCmd lists images.
type ImageListCmd struct {
	Format string `help:"text: a table; json: an image a line." enum:"text,json" default:"text"`
	ImageStoreFlags
}

// Run lists the images by name.
func (c *ImageListCmd) Run(ctx context.Context, term *terminal) error {
	return c.with(func(store *containerd.ImageStore) error {
		list, err := store.List(ctx)
		if err != nil {
			return err
		}
		if c.Format == "json" {
			lines := json.NewEncoder(term.out)
			for _, img := range list {
				if err := lines.Encode(img); err != nil {
					return err
				}
			}
			return nil
		}
		w := tabwriter.NewWriter(term.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tDIGEST\tSIZE\tPLATFORM\tORIGIN\tUSED BY")
		for _, img := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(img.Name), shortDigest(img.Digest), size(img.Size),
				cmp.Or(oneLine(img.Platform), "incomplete"), cmp.Or(img.Origin, "other"), cmp.Or(oneLine(strings.Join(img.Tools, ",")), "-"))
		}
		return w.Flush()
	})
}

// shortDigest is enough of a digest for people; --format json has all of it.
func shortDigest(digest string) string {
	const enough = len("sha256:") + 12
	return oneLine(digest[:min(len(digest), enough)])
}

// ImageRemoveCmd removes images.
type ImageRemoveCmd struct {
	Image []string `arg:"" help:"Names of images, as tool files or the list write them."`
	Force bool     `help:"Also an image that tools use. Sandboxes that run from it go on."`
	ImageStoreFlags
}

// Run removes, and prints the names of what is gone.
func (c *ImageRemoveCmd) Run(ctx context.Context, term *terminal) error {
	return c.with(func(store *containerd.ImageStore) error {
		var errs []error
		for _, ref := range c.Image {
			name, err := store.Remove(ctx, ref, c.Force)
			if errors.Is(err, containerd.ErrImageInUse) {
				err = fmt.Errorf("%s: %w; --force removes it all the same", oneLine(ref), err)
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			fmt.Fprintln(term.out, oneLine(name))
		}
		return errors.Join(errs...)
	})
}
