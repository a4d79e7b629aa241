//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/sandbox/image"
)

// The images that are the node's and the test's, beside the fleet's own.
const (
	pauseImage    = "toolfleet.local/pause:e2e"
	corednsImage  = "toolfleet.local/coredns:e2e"
	archivesImage = "toolfleet.local/tool-archives:e2e"
)

// importImages gives the node every image that pods name: there is no registry.
func (n *node) importImages(t *testing.T) {
	t.Helper()
	ctr := filepath.Join(n.toolchain, "ctr")
	eventually(t, time.Minute, "containerd answers", func() error {
		_, err := command(ctr, "version")
		return err
	})
	if out, err := command("go", "build", "-trimpath", "-o", n.path("pause"), "./testdata/pause"); err != nil {
		t.Fatal(out, err)
	}
	archives := image.Program{Entrypoint: []string{"/none"}}
	for _, tool := range []string{"countdown", "word-count"} {
		file, err := filepath.Abs(filepath.Join(root, "bin/images", tool+".tar"))
		if err != nil {
			t.Fatal(err)
		}
		archives.Add = append(archives.Add, file+":/"+tool+".tar")
	}
	files := []string{
		n.archive(t, pauseImage, image.Program{Entrypoint: []string{"/pause"}, Add: []string{n.path("pause") + ":/pause"}}),
		n.archive(t, corednsImage, image.Program{Entrypoint: []string{"/coredns"}, Add: []string{n.program("coredns") + ":/coredns"}}),
		n.archive(t, archivesImage, archives),
	}
	fleet, err := filepath.Glob(filepath.Join(root, "bin/fleet/*.tar"))
	if err != nil || len(fleet) != 3 {
		t.Fatalf("the fleet's images are %v (%v); run make images", fleet, err)
	}
	for _, file := range append(files, fleet...) {
		if _, err := command(ctr, "--namespace=k8s.io", "images", "import", "--local", file); err != nil {
			t.Fatal(err)
		}
	}
}

// archive makes an image and returns its file.
func (n *node) archive(t *testing.T, ref string, p image.Program) string {
	t.Helper()
	img, err := p.Build()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(n.dir, "image-*.tar")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := image.WriteArchive(f, ref, img); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}
