package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// FromDirectory makes an image whose root holds what is in dir.
func FromDirectory(dir string) (v1.Image, error) {
	t := New()
	if err := t.AddDirectory(dir); err != nil {
		return nil, err
	}
	return t.Image()
}

// FromGoPackage makes an image with the main package in dir, built to a static
// binary, at /tool.
func FromGoPackage(ctx context.Context, dir string) (v1.Image, error) {
	return Recipe{Package: dir}.Build(ctx)
}

// Recipe is what goes into an image, in this order, so that later parts
// replace earlier ones. Every field may be empty.
type Recipe struct {
	// Directory's contents come to the root of the image.
	Directory string
	// Package is the directory of a Go main package; its binary is /tool.
	Package string
	// Add holds "source:destination", files or directories.
	Add []string
	// Link holds "path=target", symbolic links.
	Link []string
}

// Build makes the image. ctx bounds the compiler.
func (r Recipe) Build(ctx context.Context) (v1.Image, error) {
	t := New()
	if r.Directory != "" {
		if err := t.AddDirectory(r.Directory); err != nil {
			return nil, err
		}
	}
	if r.Package != "" {
		if err := t.AddGoPackage(ctx, r.Package); err != nil {
			return nil, err
		}
	}
	if err := t.apply(r.Add, ":", t.Add); err != nil {
		return nil, err
	}
	if err := t.apply(r.Link, "=", t.Link); err != nil {
		return nil, err
	}
	return t.Image()
}

// AddGoPackage builds the main package in dir to a static binary and places it
// at [ToolPath].
func (t *Tree) AddGoPackage(ctx context.Context, dir string) error {
	tmp, err := os.MkdirTemp("", "toolfleet-image-")
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	binary := filepath.Join(tmp, "tool")
	if err := buildGo(ctx, dir, binary); err != nil {
		return err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	t.put(ToolPath[1:], entry{mode: 0o755, content: string(content)})
	return nil
}

// apply calls fn with both halves of each pair.
func (t *Tree) apply(pairs []string, sep string, fn func(first, second string) error) error {
	for _, pair := range pairs {
		first, second, ok := strings.Cut(pair, sep)
		if !ok || first == "" || second == "" {
			return fmt.Errorf("image: %q must be two paths with %q between them", pair, sep)
		}
		if err := fn(first, second); err != nil {
			return err
		}
	}
	return nil
}

// buildGo compiles the package in dir. The binary tells nothing about this
// machine or about the state of its version control, so it is the same
// everywhere for the same sources and compiler.
func buildGo(ctx context.Context, dir, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", binary, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("image: build %s: %w\n%s", dir, err, strings.TrimSpace(string(out)))
	}
	return nil
}
