package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Annotations that name an image in an index.
const (
	annotationName = "io.containerd.image.name"
	annotationRef  = "org.opencontainers.image.ref.name"
)

// maxDepth bounds how many indexes may lie in each other.
const maxDepth = 4

// Index tells the names of the images in an OCI layout, a plain tar, and the
// digest of each, as its index has them: nothing of it was checked. It reads no
// layer. What docker save wrote has no such index.
func Index(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("image: open archive: %w", err)
	}
	defer f.Close()
	for in := tar.NewReader(f); ; { // which seeks over what nobody reads
		h, err := in.Next()
		if err != nil {
			return nil, fmt.Errorf("image: %s: look for %s: %w", path, indexFile, err)
		}
		if h.Name != indexFile {
			continue
		}
		index, err := v1.ParseIndexManifest(io.LimitReader(in, maxManifest))
		if err != nil {
			return nil, fmt.Errorf("image: %s: %w", path, err)
		}
		digests := make(map[string]string, len(index.Manifests))
		for _, m := range index.Manifests {
			name := nameOf(m)
			if name == "" {
				return nil, fmt.Errorf("image: %s: %w", path, errNoName)
			}
			digests[name] = m.Digest.String()
		}
		return digests, nil
	}
}

// nameOf is the name that an index gives an image, or "". A lone tag, which is
// what most programs write there, names nothing.
func nameOf(m v1.Descriptor) string {
	if name := m.Annotations[annotationName]; name != "" {
		return name
	}
	if name := m.Annotations[annotationRef]; strings.ContainsAny(name, "/:") {
		return name
	}
	return ""
}

// layout checks an OCI layout from its index down.
func (c *check) layout() error {
	index, err := v1.ParseIndexManifest(bytes.NewReader(c.texts[indexFile]))
	if err != nil {
		return fmt.Errorf("%s is missing or cannot be read", indexFile)
	}
	if len(index.Manifests) == 0 || len(index.Manifests) > maxImages {
		return fmt.Errorf("it has %d images; between 1 and %d are taken", len(index.Manifests), maxImages)
	}
	if err := c.rename(index); err != nil {
		return err
	}
	named := 0
	for _, m := range index.Manifests {
		if err := c.manifest(m, 1); err != nil {
			return err
		}
		ref := nameOf(m)
		if ref == "" {
			continue
		}
		if err := validName(ref); err != nil {
			return err
		}
		named++
	}
	if named == 0 {
		return errNoName
	}
	return nil
}

// rename gives the one image of an index the name that was asked for.
func (c *check) rename(index *v1.IndexManifest) error {
	if c.name == "" {
		return nil
	}
	if len(index.Manifests) > 1 {
		return errTooMany(len(index.Manifests))
	}
	if err := validName(c.name); err != nil {
		return err
	}
	only := &index.Manifests[0]
	if only.Annotations == nil {
		only.Annotations = map[string]string{}
	}
	only.Annotations[annotationName] = c.name
	text, err := json.Marshal(index)
	c.texts[indexFile] = text
	return err
}

// manifest checks what desc describes, and what hangs on it. An index may lack
// what it has for other machines: docker save leaves that out.
func (c *check) manifest(desc v1.Descriptor, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("its indexes lie more than %d deep in each other", maxDepth)
	}
	if err := c.blob(desc); err != nil {
		if depth > 1 && !forUs(desc.Platform) {
			return nil
		}
		return err
	}
	text := c.texts[blobPath(desc.Digest)]
	switch {
	case desc.MediaType.IsIndex():
		index, err := v1.ParseIndexManifest(bytes.NewReader(text))
		if err != nil || len(index.Manifests) > maxImages {
			return fmt.Errorf("the index %s cannot be read", desc.Digest)
		}
		for _, m := range index.Manifests {
			if err := c.manifest(m, depth+1); err != nil {
				return err
			}
		}
	case desc.MediaType.IsImage():
		m, err := v1.ParseManifest(bytes.NewReader(text))
		if err != nil || len(m.Layers) > maxLayers {
			return fmt.Errorf("the manifest %s cannot be read, or has more than %d layers", desc.Digest, maxLayers)
		}
		for _, part := range append([]v1.Descriptor{m.Config}, m.Layers...) {
			if err := c.blob(part); err != nil && (depth == 1 || forUs(desc.Platform)) {
				return err
			}
		}
	}
	return nil
}

// blob checks that the contents of desc are there; that they are what the
// digest says was checked when they came.
func (c *check) blob(desc v1.Descriptor) error {
	switch size, ok := c.sizes[blobPath(desc.Digest)]; {
	case desc.Digest.Algorithm != "sha256":
		return fmt.Errorf("the digest %.100s is no sha256", desc.Digest)
	case !ok:
		return fmt.Errorf("%s is missing", desc.Digest)
	case size != desc.Size:
		return fmt.Errorf("%s has %d bytes and not %d", desc.Digest, size, desc.Size)
	}
	return nil
}

// forUs reports whether a part of an index is for this machine; one that does
// not say is.
func forUs(p *v1.Platform) bool {
	return p == nil || p.OS == runtime.GOOS && p.Architecture == runtime.GOARCH
}
