package containerd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/image"
)

// layered is img with one more layer of what is given.
func layered(t *testing.T, img v1.Image, headers ...tar.Header) v1.Image {
	t.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for _, h := range headers {
		h.Mode |= 0o666
		if err := out.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(img, static.NewLayer(b.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestHostileLayers: what a layer may hold that is no plain file.
func TestHostileLayers(t *testing.T) {
	rt := open(t, "hostile-layers")
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	img := layered(t, shellImage(t, "below"),
		tar.Header{Name: "kmsg", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 11},
		tar.Header{Name: "zero", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5},
		tar.Header{Name: "fifo", Typeflag: tar.TypeFifo},
		tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: outside},
		tar.Header{Name: "out/escaped", Typeflag: tar.TypeReg, Size: 1},
		tar.Header{Name: "out/.wh.mine", Typeflag: tar.TypeReg},
		tar.Header{Name: "../../../../../.." + outside + "/dots", Typeflag: tar.TypeReg, Size: 1},
		tar.Header{Name: ".wh.content", Typeflag: tar.TypeReg},
	)
	importImage(t, rt, "local/layers:1", img)
	inst, err := rt.Start(t.Context(), "layers", sandbox.Spec{Image: "local/layers:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer closeInstance(t, inst)
	got := ask(t, inst, "for d in kmsg zero; do (head -c 1 </$d) >/dev/null 2>&1 && echo $d opens; done; [ -e /content ] && echo not whited out; echo done")
	if got != "done" {
		t.Errorf("inside: %q", got)
	}
	left, err := os.ReadDir(outside)
	if err != nil || len(left) != 1 || left[0].Name() != "mine" {
		t.Errorf("outside: %v, %v", left, err)
	}
	forget(t, "local/layers:1")

	for what, bad := range map[string]v1.Image{
		"a hard link out": layered(t, shellImage(t, "below"), tar.Header{Name: "x", Typeflag: tar.TypeLink, Linkname: "../../../../../../etc/shadow"}),
		"no tar":          junkLayer(t),
	} {
		var archive bytes.Buffer
		if err := image.WriteArchive(&archive, "local/bad:1", bad); err != nil {
			t.Fatal(err)
		}
		if names, err := rt.Import(t.Context(), &archive); fault(err) != sandbox.ImageCorrupt {
			t.Errorf("%s: imported %q, %v", what, names, err)
		}
		forget(t, "local/bad:1")
	}
}

func junkLayer(t *testing.T) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(shellImage(t, "below"), static.NewLayer([]byte(strings.Repeat("junk", 512)), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestImportDockerSave: an archive of docker save's is found by the name that
// tool files write, and one that breaks off changes nothing.
func TestImportDockerSave(t *testing.T) {
	rt := open(t, "docker-save")
	tag, err := name.NewTag("local/saved:1")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "saved.tar")
	if err := tarball.WriteToFile(file, tag, shellImage(t, "saved")); err != nil {
		t.Fatal(err)
	}
	store, err := containerd.OpenImages(daemon.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	take := func(file string) ([]string, error) {
		archive, err := image.Open(file, "")
		if err != nil {
			return nil, err
		}
		names, err := store.Import(t.Context(), archive)
		return names, errors.Join(err, archive.Close())
	}
	if names, err := take(file); err != nil || len(names) != 1 {
		t.Fatalf("imported %q, %v", names, err)
	}
	if got := content(t, rt, "saved", "local/saved:1"); got != "saved" {
		t.Errorf("sandbox of %q", got)
	}
	info, err := os.Stat(file)
	if err == nil {
		err = os.Truncate(file, info.Size()/2)
	}
	if err != nil {
		t.Fatal(err)
	}
	if names, err := take(file); err == nil {
		t.Errorf("imported %q from half an archive", names)
	}
	if got := content(t, rt, "still", "local/saved:1"); got != "saved" {
		t.Errorf("sandbox of %q", got)
	}
	if _, err := store.Remove(t.Context(), "local/saved:1", false); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.List(ended); err == nil {
		t.Error("listed on a context that has ended")
	}
}
