package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Bounds of an archive.
const (
	maxEntries  = 20_000
	maxArchive  = 32 << 30
	maxManifest = 4 << 20  // of one manifest, index or configuration
	maxKept     = 64 << 20 // of all of them
	maxImages   = 1_000
	maxLayers   = 512
)

// The files that say what is in an archive.
const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"
	dockerFile = "manifest.json"
)

// check passes the entries of an archive on to a tar of its own, and refuses
// what it would not vouch for. The files that say what is in the archive are
// held back to the end, when the rest is known.
type check struct {
	out     *tar.Writer
	name    string // for the one image of the archive; may be empty
	entries int
	total   int64
	kept    int64
	sizes   map[string]int64  // of the files, by path
	links   map[string]string // docker save points to shared layers by links
	texts   map[string][]byte // of the files that may be JSON
}

func newCheck(w io.Writer, name string) *check {
	return &check{
		out: tar.NewWriter(w), name: name,
		sizes: map[string]int64{}, links: map[string]string{}, texts: map[string][]byte{},
	}
}

// add takes one entry.
func (c *check) add(h *tar.Header, content io.Reader) error {
	if c.entries++; c.entries > maxEntries {
		return fmt.Errorf("it has more than %d entries", maxEntries)
	}
	file := path.Clean(h.Name)
	if !filepath.IsLocal(file) {
		return fmt.Errorf("%.100q leads out of the archive", h.Name)
	}
	if _, twice := c.sizes[file]; twice || c.links[file] != "" {
		return fmt.Errorf("%.100q is there twice", file)
	}
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeXGlobalHeader:
		return nil
	case tar.TypeSymlink:
		return c.link(file, h.Linkname)
	case tar.TypeReg:
		return c.file(file, h.Size, content)
	}
	return fmt.Errorf("%.100q is no plain file", file)
}

func (c *check) link(file, to string) error {
	target := path.Join(path.Dir(file), to)
	if path.IsAbs(to) || !filepath.IsLocal(target) {
		return fmt.Errorf("the link %.100q leads out of the archive", file)
	}
	c.links[file] = target
	return c.out.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: file, Linkname: to, Mode: 0o777, ModTime: epoch, Format: tar.FormatPAX})
}

func (c *check) file(file string, size int64, content io.Reader) error {
	if c.total += size; c.total > maxArchive {
		return fmt.Errorf("it has more than %d bytes", int64(maxArchive))
	}
	c.sizes[file] = size
	switch file {
	case layoutFile, indexFile, dockerFile:
		if size > maxManifest {
			return fmt.Errorf("%s has %d bytes; at most %d are read", file, size, maxManifest)
		}
		_, err := c.keep(file, size, content)
		return err
	}
	if err := c.out.WriteHeader(header(file, size)); err != nil {
		return err
	}
	content, err := c.keep(file, size, content)
	if err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(c.out, sum), content); err != nil {
		return fmt.Errorf("read %.100q: %w", file, err)
	}
	if digest, blob := strings.CutPrefix(file, "blobs/sha256/"); blob && digest != hex.EncodeToString(sum.Sum(nil)) {
		return fmt.Errorf("the contents of %.100q are not what its digest says", file)
	}
	return nil
}

// keep remembers a small file that begins as JSON does, and returns all of it.
func (c *check) keep(file string, size int64, content io.Reader) (io.Reader, error) {
	if size == 0 || size > maxManifest {
		return content, nil
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(content, first); err != nil {
		return nil, fmt.Errorf("read %.100q: %w", file, err)
	}
	content = io.MultiReader(bytes.NewReader(first), content)
	if first[0] != '{' && first[0] != '[' {
		return content, nil
	}
	if c.kept += size; c.kept > maxKept {
		return nil, fmt.Errorf("its manifests have more than %d bytes", maxKept)
	}
	text, err := io.ReadAll(content)
	if err != nil {
		return nil, fmt.Errorf("read %.100q: %w", file, err)
	}
	c.texts[file] = text
	return bytes.NewReader(text), nil
}

// finish checks that everything is there that the archive says it has, and
// writes the files that say so.
func (c *check) finish() error {
	var err error
	switch {
	case c.texts[layoutFile] != nil:
		err = c.layout()
	case c.texts[dockerFile] != nil:
		err = c.docker()
	default:
		err = errors.New("it is neither an OCI layout nor what docker save writes")
	}
	if err != nil {
		return err
	}
	for _, file := range []string{layoutFile, indexFile, dockerFile} {
		if text := c.texts[file]; text != nil {
			if err := writeFile(c.out, file, text); err != nil {
				return err
			}
		}
	}
	return c.out.Close()
}

// dockerImage is one image of docker save's manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (c *check) docker() error {
	var list []dockerImage
	if err := json.Unmarshal(c.texts[dockerFile], &list); err != nil {
		return fmt.Errorf("%s: %w", dockerFile, err)
	}
	if len(list) == 0 || len(list) > maxImages {
		return fmt.Errorf("it has %d images; between 1 and %d are taken", len(list), maxImages)
	}
	if c.name != "" {
		if len(list) > 1 {
			return errTooMany(len(list))
		}
		list[0].RepoTags = []string{c.name}
	}
	for _, img := range list {
		if len(img.Layers) > maxLayers {
			return fmt.Errorf("an image has %d layers; at most %d are taken", len(img.Layers), maxLayers)
		}
		for _, file := range append([]string{img.Config}, img.Layers...) {
			if !c.has(file) {
				return fmt.Errorf("%.100q is missing", file)
			}
		}
		if len(img.RepoTags) == 0 {
			return errNoName
		}
		for _, ref := range img.RepoTags {
			if err := validName(ref); err != nil {
				return err
			}
		}
	}
	text, err := json.Marshal(list)
	c.texts[dockerFile] = text
	return err
}

func (c *check) has(file string) bool {
	file = path.Clean(file)
	if to := c.links[file]; to != "" {
		file = to
	}
	_, ok := c.sizes[file]
	return ok
}

var errNoName = errors.New("an image in it has no name; give one with --tag")

func errTooMany(n int) error {
	return fmt.Errorf("it has %d images, and one name cannot be all of theirs; leave --tag out", n)
}

func validName(ref string) error {
	if _, err := name.ParseReference(ref); err != nil {
		return fmt.Errorf("%.100q cannot be the name of an image", ref)
	}
	return nil
}
