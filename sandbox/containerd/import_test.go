package containerd_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/image"
)

// TestFailedImportTakesNoName: an archive whose image cannot run here leaves the
// image that had its name, and no name that was not there.
func TestFailedImportTakesNoName(t *testing.T) {
	rt := open(t, "w1")
	store, err := containerd.OpenImages(daemon.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const old, other = "local/taken:1", "local/not-taken:1"
	importImage(t, rt, old, shellImage(t, "good"))
	junk, err := mutate.AppendLayers(shellImage(t, "junk"), static.NewLayer([]byte("no layer"), types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]v1.Image{"another machine's": foreignImage(t, shellImage(t, "bad")), "junk": junk} {
		for _, ref := range []string{old, other} {
			if names, err := rt.Import(t.Context(), anywhere(t, ref, bad)); err == nil {
				t.Errorf("%s: a worker imported %q", name, names)
			}
			if names, err := store.Import(t.Context(), anywhere(t, ref, bad)); err == nil {
				t.Errorf("%s: imported %q", name, names)
			}
		}
		if got := content(t, rt, "taken", old); got != "good" {
			t.Errorf("%s: sandbox of %q", name, got)
		}
		if _, err := store.Remove(t.Context(), other, true); err == nil {
			t.Errorf("%s: %s is there", name, other)
		}
	}
}

// anywhere is an archive whose index does not say for which machine it is, as
// many programs write them.
func anywhere(t *testing.T, ref string, img v1.Image) io.Reader {
	t.Helper()
	var archive bytes.Buffer
	if err := image.WriteArchive(&archive, ref, img); err != nil {
		t.Fatal(err)
	}
	return rewritten(t, &archive, "index.json", func(text []byte) []byte {
		var index v1.IndexManifest
		if err := json.Unmarshal(text, &index); err != nil {
			t.Fatal(err)
		}
		index.Manifests[0].Platform = nil
		text, err := json.Marshal(index)
		if err != nil {
			t.Fatal(err)
		}
		return text
	})
}

// rewritten is an archive with one file changed.
func rewritten(t *testing.T, archive io.Reader, file string, change func([]byte) []byte) io.Reader {
	t.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(in)
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == file {
			content = change(content)
			h.Size = int64(len(content))
		}
		if err = out.WriteHeader(h); err == nil {
			_, err = out.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}
