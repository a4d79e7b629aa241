package part

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
)

func TestWarmth(t *testing.T) {
	tool := func(image, class string, minimum, maximum int) catalog.Spec {
		return catalog.Spec{Type: catalog.TypeFunction, Image: image, Class: class, Warm: catalog.Warm{Min: minimum, Max: maximum}}
	}
	server := tool("d", "default", 1, 1)
	server.Type = catalog.TypeServer
	got := warmth([]catalog.Spec{
		tool("a", "default", 1, 2), tool("a", "default", 0, 3), tool("a", "default", 0, 0),
		tool("b", "default", 0, 0), tool("c", "other", 1, 1), server,
	}, "default")
	want := map[sandbox.Spec]catalog.Warm{{Image: "a"}: {Min: 1, Max: 5}, {Image: "b"}: {}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
