package part

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
)

func TestWarmth(t *testing.T) {
	tool := func(image, class string, minimum, maximum int) catalog.Spec {
		return catalog.Spec{Type: catalog.TypeFunction, Image: image, Class: class, Warm: catalog.Warm{Min: minimum, Max: maximum}}
	}
	got := warmth([]catalog.Spec{
		tool("a", "default", 1, 2), tool("a", "default", 0, 3), tool("a", "default", 0, 0),
		tool("b", "default", 0, 0),
	})
	want := map[sandbox.Spec]catalog.Warm{{Image: "a"}: {Min: 1, Max: 5}, {Image: "b"}: {}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestCellsAreWantedByTheirTenants: cells are made ahead for the tenants that a
// tool names, wanted for others from their first call, and forgotten when many
// came after.
func TestCellsAreWantedByTheirTenants(t *testing.T) {
	cells := catalog.Spec{
		Name: "sum", Type: catalog.TypeFunction, Isolation: catalog.IsolationCell, Image: "a", Class: "default",
		Warm: catalog.Warm{Min: 1, Max: 2}, Tenants: []string{"first", "second"},
	}
	open := cells
	open.Name, open.Tenants = "free", nil
	w := newWarmPool(sandbox.PoolConfig{Runtime: noRuntime{}}, nil)
	w.follow([]catalog.Spec{cells, open})
	ahead := []sandbox.Spec{open.Sandbox("default"), cells.Sandbox("second"), cells.Sandbox("first")}
	if d := cmp.Diff(ahead, w.recent); d != "" {
		t.Error(d)
	}
	get := func(spec sandbox.Spec) {
		if _, _, err := w.Take(t.Context(), spec, func(context.Context) error { return nil }); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	changed := cells
	changed.Image = "b"
	get(changed.Sandbox("first"))
	if d := cmp.Diff(ahead, w.recent); d != "" {
		t.Errorf("a spec that is not the catalogue's is kept: %s", d)
	}
	get(cells.Sandbox("first"))
	get(open.Sandbox("other"))
	want := []sandbox.Spec{open.Sandbox("other"), cells.Sandbox("first"), open.Sandbox("default"), cells.Sandbox("second")}
	if d := cmp.Diff(want, w.recent); d != "" {
		t.Error(d)
	}
	for i := range maxCellOwners {
		get(open.Sandbox(fmt.Sprint("tenant-", i)))
	}
	if len(w.recent) != maxCellOwners || slices.ContainsFunc(want, func(s sandbox.Spec) bool { return slices.Contains(w.recent, s) }) {
		t.Errorf("%d owners are wanted, %v of them", len(w.recent), want)
	}
}

// noRuntime starts nothing.
type noRuntime struct{ sandbox.Runtime }

func (noRuntime) Name() string { return "none" }

func (noRuntime) Start(context.Context, string, sandbox.Spec) (sandbox.Instance, error) {
	return nil, sandbox.ErrUnavailable
}
