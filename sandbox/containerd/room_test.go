package containerd_test

import (
	"crypto/rand"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// TestNoRoom: an image that the disk has no room for is told so, and the next
// one that fits runs.
func TestNoRoom(t *testing.T) {
	state := newState(t)
	if err := syscall.Mount("tmpfs", state, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(state, 0); err != nil {
			t.Error(err)
		}
	})
	d := startDaemon(t, state)
	rt, err := containerd.New(containerd.Config{Address: d.Address(), Owner: "full", AgentPath: shell, BinDir: d.BinDir(), StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	h := newHub(t)
	layer := make([]byte, 80<<20)
	_, _ = rand.Read(layer)
	large := shellImage(t, "large")
	if large, err = mutate.AppendLayers(large, static.NewLayer(layer, types.OCIUncompressedLayer)); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Ensure(t.Context(), h.push(t, "full/large:1", large), "missing"); fault(err) != sandbox.ImageNoRoom {
		t.Errorf("an image larger than the disk: %v", err)
	}
	ref := h.push(t, "full/small:1", shellImage(t, "small"))
	if got := content(t, rt, "small", pulled(t, rt, ref)); got != "small" {
		t.Errorf("sandbox of %q", got)
	}
}

func pulled(t *testing.T, rt *containerd.Runtime, ref string) string {
	t.Helper()
	if _, err := rt.Ensure(t.Context(), ref, "missing"); err != nil {
		t.Fatal(err)
	}
	return ref
}
