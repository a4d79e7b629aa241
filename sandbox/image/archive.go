package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// WriteArchive writes img to w as an archive of an OCI image layout, which
// containerd imports under the name ref, just as it is written here: a tool's
// spec that says "local/word-count:1" means that name. A name without a tag is
// refused: "latest" in its place would be another name than the one that was
// given, and no tool file would find it.
func WriteArchive(w io.Writer, ref string, img v1.Image) error {
	parsed, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("image: %q is not a name with a tag: %w", ref, err)
	}
	if !strings.HasSuffix(ref, ":"+parsed.TagStr()) {
		return fmt.Errorf("image: %q has no tag; write %s:1, say", ref, ref)
	}
	out := tar.NewWriter(w)
	index, err := indexOf(img, ref, parsed.TagStr())
	if err != nil {
		return err
	}
	if err := writeFile(out, layoutFile, []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := writeFile(out, indexFile, index); err != nil {
		return err
	}
	if err := writeBlobs(out, img); err != nil {
		return err
	}
	return out.Close()
}

// indexOf names the image twice: for containerd and for everybody else.
func indexOf(img v1.Image, ref, tag string) ([]byte, error) {
	digest, err := img.Digest()
	if err != nil {
		return nil, fmt.Errorf("image: digest: %w", err)
	}
	size, err := img.Size()
	if err != nil {
		return nil, fmt.Errorf("image: size: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("image: read config: %w", err)
	}
	return json.Marshal(v1.IndexManifest{
		SchemaVersion: 2,
		MediaType:     types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType: types.OCIManifestSchema1, Digest: digest, Size: size,
			Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture},
			Annotations: map[string]string{
				annotationName: ref,
				annotationRef:  tag,
			},
		}},
	})
}

// writeBlobs writes manifest, configuration and layers, in this order.
func writeBlobs(out *tar.Writer, img v1.Image) error {
	manifest, err := img.RawManifest()
	if err != nil {
		return fmt.Errorf("image: manifest: %w", err)
	}
	digest, err := img.Digest()
	if err != nil {
		return fmt.Errorf("image: digest: %w", err)
	}
	if err := writeFile(out, blobPath(digest), manifest); err != nil {
		return err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return fmt.Errorf("image: config: %w", err)
	}
	if digest, err = img.ConfigName(); err != nil {
		return fmt.Errorf("image: config: %w", err)
	}
	if err := writeFile(out, blobPath(digest), config); err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return fmt.Errorf("image: layers: %w", err)
	}
	for _, l := range layers {
		if err := writeLayer(out, l); err != nil {
			return fmt.Errorf("image: write layer: %w", err)
		}
	}
	return nil
}

func writeLayer(out *tar.Writer, l v1.Layer) (err error) {
	digest, err := l.Digest()
	if err != nil {
		return err
	}
	size, err := l.Size()
	if err != nil {
		return err
	}
	content, err := l.Compressed()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	if err := out.WriteHeader(header(blobPath(digest), size)); err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return err
}

func writeFile(out *tar.Writer, path string, content []byte) error {
	if err := out.WriteHeader(header(path, int64(len(content)))); err != nil {
		return fmt.Errorf("image: write archive: %w", err)
	}
	if _, err := out.Write(content); err != nil {
		return fmt.Errorf("image: write archive: %w", err)
	}
	return nil
}

func header(path string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: path, Size: size, Mode: 0o644, ModTime: epoch, Format: tar.FormatPAX}
}

func blobPath(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
