package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/image"
)

// ImageCmd makes tool images, and looks after those of the fleet on this
// machine.
type ImageCmd struct {
	Build  ImageBuildCmd  `cmd:"" help:"Make an image out of a Go package or a directory, without Docker."`
	Import ImageImportCmd `cmd:"" help:"Take images that others made into the fleet on this machine."`
	List   ImageListCmd   `cmd:"" help:"List the images of the fleet on this machine."`
	Remove ImageRemoveCmd `cmd:"" help:"Remove images from the fleet on this machine."`
}

// ImageBuildCmd makes an image. Where it goes: into the archive that is asked
// for, or else into the containerd of the fleet on this machine.
type ImageBuildCmd struct {
	Source string   `arg:"" help:"Directory: with Go files it is a main package, whose program becomes /tool; without, its contents become the root of the image." type:"existingdir"`
	Tag    string   `short:"t" required:"" help:"Name of the image, with a tag, as tool files write it." placeholder:"local/NAME:TAG"`
	Add    []string `help:"More files, as SOURCE:DESTINATION; may be repeated." sep:"none"`
	Link   []string `help:"Symbolic links, as PATH=TARGET; may be repeated." sep:"none"`

	Output string `short:"o" help:"Write an OCI archive to this file instead of importing." type:"path"`
	Import bool   `help:"Import as well when --output is given."`
	ImageStoreFlags
}

// Run builds the image and prints its name and digest.
func (c *ImageBuildCmd) Run(ctx context.Context, term *terminal) error {
	if info, err := os.Stat(filepath.Dir(c.Output)); c.Output != "" && (err != nil || !info.IsDir()) {
		return usagef("there is no directory %s to write the archive to; make it first", filepath.Dir(c.Output))
	}
	recipe := image.Recipe{Add: c.Add, Link: c.Link}
	if gofiles, err := filepath.Glob(filepath.Join(c.Source, "*.go")); err != nil {
		return usageError{err}
	} else if len(gofiles) > 0 {
		recipe.Package = c.Source
	} else {
		recipe.Directory = c.Source
	}
	img, err := recipe.Build(ctx)
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	if err := c.deliver(ctx, img); err != nil {
		return err
	}
	fmt.Fprintf(term.out, "%s@%s\n", c.Tag, digest)
	return nil
}

// deliver writes the archive beside its place and moves it there whole, so
// that nobody reads half of one; then imports it.
func (c *ImageBuildCmd) deliver(ctx context.Context, img v1.Image) (err error) {
	dir := os.TempDir()
	if c.Output != "" {
		dir = filepath.Dir(c.Output)
	}
	f, err := os.CreateTemp(dir, ".toolfleet-image-*")
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	name := f.Name()
	defer func() {
		err = errors.Join(err, f.Close())
		if rerr := os.Remove(name); !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}()
	if err := image.WriteArchive(f, c.Tag, img); err != nil {
		return err
	}
	if c.Output == "" || c.Import {
		if err := c.importInto(ctx, f); err != nil {
			return err
		}
	}
	if c.Output == "" {
		return nil
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return os.Rename(name, c.Output)
}

func (c *ImageBuildCmd) importInto(ctx context.Context, archive io.ReadSeeker) error {
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return c.with(func(store *containerd.ImageStore) error {
		_, err := store.Import(ctx, archive)
		return err
	})
}
