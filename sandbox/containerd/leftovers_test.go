package containerd_test

import (
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// TestLeftoversCountsWhatLives: what a live sandbox has on the host is counted,
// its network namespace too, and gone with it.
func TestLeftoversCountsWhatLives(t *testing.T) {
	rt := open(t, "w1")
	inst := start(t, rt, "left-1", sandbox.Limits{})
	ask(t, inst, "true") // its process is in its namespaces for sure
	left, err := rt.Leftovers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left.Mounts, left.Snapshots = 0, 0 // as many as the runtime likes
	want := containerd.Leftovers{Shims: 1, Containers: 1, Cgroups: 1, NetworkNamespaces: 1, Dirs: 1}
	if left != want {
		t.Errorf("a live sandbox has %+v, want %+v", left, want)
	}
	closeInstance(t, inst)
	noLeftovers(t, rt)
}
