package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// bubblewrap is the rival that makes namespaces and mounts and nothing else: no
// daemon, no limits, no lock-down, no answer but an exit code.
type bubblewrap struct{ program, root string }

// openBubblewrap unpacks the image below dir.
func openBubblewrap(dir, archive string) (*bubblewrap, error) {
	program, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, fmt.Errorf("bench: bubblewrap is missing; install Debian's package bubblewrap: %w", err)
	}
	b := &bubblewrap{program: program, root: filepath.Join(dir, "root")}
	if err := os.MkdirAll(b.root, 0o755); err != nil {
		return nil, err
	}
	return b, unpack(archive, filepath.Join(dir, "image"), b.root)
}

// unpack writes an image's files below root. The image is our own example's.
func unpack(archive, dir, root string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil { //nolint:noctx // a moment
		return fmt.Errorf("bench: unpack %s: %w: %s", archive, err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("bench: read %s: %w", archive, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) == 0 {
		return errors.New("bench: the archive holds no image")
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		files, err := l.Uncompressed()
		if err != nil {
			return err
		}
		tar := exec.Command("tar", "-x", "-C", root) //nolint:noctx // a moment
		tar.Stdin = files
		out, err := tar.CombinedOutput()
		if err = errors.Join(err, files.Close()); err != nil {
			return fmt.Errorf("bench: unpack layer: %w: %s", err, out)
		}
	}
	// Where bubblewrap mounts.
	for _, name := range []string{"proc", "dev", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// run is one call: the same tool with the same arguments as a fleet's, in new
// namespaces of every kind.
func (b *bubblewrap) run(ctx context.Context) error {
	args := []string{
		"--unshare-all", "--die-with-parent", "--new-session",
		"--ro-bind", b.root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
	}
	cmd := exec.CommandContext(ctx, b.program, append(args, measured...)...)
	cmd.Stdin = strings.NewReader(`{"text":"to be or not to be"}`)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %.500s", err, out)
	}
	return nil
}
