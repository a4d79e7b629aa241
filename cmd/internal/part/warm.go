package part

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/sandbox"
)

// maxCellOwners bounds for how many tenants' tools containers of cells are
// kept. The pool bounds the containers themselves.
const maxCellOwners = 64

// warmPool is the pool as the worker's calls use it: it knows from the
// catalogue what to keep warm, and counts hits and misses.
//
// Containers are wanted from the start. A container of cells belongs to one
// tool of one tenant, and tenants are known only by their calls: theirs are
// wanted from the first call on, and forgotten when calls of many others came
// after the last.
type warmPool struct {
	*sandbox.Pool

	metrics *metrics.Metrics
	cells   map[sandbox.Spec]catalog.Warm // by a spec whose owner has no tenant

	mu     sync.Mutex     // guards recent, and goes before the pool's own
	recent []sandbox.Spec // of cells, wanted; the last used first
}

// newWarmPool wants what the tools of a class say is to be kept. What a tool
// says of its cells is kept for the tenants that it names, or the default one;
// for any other tenant it is what its calls need, up to the tool's max.
func newWarmPool(cfg sandbox.PoolConfig, tools []catalog.Spec, class string, m *metrics.Metrics) *warmPool {
	w := &warmPool{metrics: m, cells: make(map[sandbox.Spec]catalog.Warm)}
	cfg.OnStart = w.started
	w.Pool = sandbox.NewPool(cfg)
	for spec, warm := range warmth(tools, class) {
		if spec.Isolation != catalog.IsolationCell {
			w.Want(spec, warm.Min, warm.Max)
			continue
		}
		w.cells[spec] = warm
	}
	for i := range tools {
		t := &tools[i]
		warm, ok := w.cells[t.Sandbox("")]
		if !ok || warm.Min == 0 {
			continue
		}
		tenants := t.Tenants
		if len(tenants) == 0 {
			tenants = []string{call.DefaultTenant}
		}
		for _, tenant := range tenants {
			w.want(t.Sandbox(tenant), warm)
		}
	}
	return w
}

// warmth adds up what the tools of a class want to be kept warm. Tools whose
// sandboxes are alike share them: a sandbox does not know its tool before the
// call comes. Cells are told by a spec without a tenant.
func warmth(tools []catalog.Spec, class string) map[sandbox.Spec]catalog.Warm {
	sum := map[sandbox.Spec]catalog.Warm{}
	for i := range tools {
		t := &tools[i]
		if t.Type == catalog.TypeServer || t.Class != class {
			continue
		}
		spec := t.Sandbox("")
		w := sum[spec]
		w.Min += t.Warm.Min
		w.Max += t.Warm.Max
		sum[spec] = w
	}
	return sum
}

// Take implements [worker.Sandboxes].
func (w *warmPool) Take(ctx context.Context, spec sandbox.Spec, cold func(context.Context) error) (*sandbox.Sandbox, bool, error) {
	if spec.Isolation == catalog.IsolationCell {
		// A spec that is not the catalogue's, of a job that waited while the
		// tool was changed, is served and not kept.
		if warm, ok := w.cells[withoutTenant(spec)]; ok {
			w.want(spec, catalog.Warm{Max: warm.Max})
		}
	}
	sb, hit, err := w.Pool.Take(ctx, spec, cold)
	k := w.Kind(spec)
	w.metrics.PoolGet(k.Runtime, k.Isolation, hit)
	return sb, hit, err
}

// want has cells kept, or notes that those which are were used. What they were
// wanted with first stays.
func (w *warmPool) want(spec sandbox.Spec, warm catalog.Warm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.recent, spec); i >= 0 {
		copy(w.recent[1:i+1], w.recent[:i])
		w.recent[0] = spec
		return
	}
	if len(w.recent) == maxCellOwners {
		w.Want(w.recent[maxCellOwners-1], 0, 0)
		w.recent = w.recent[:maxCellOwners-1]
	}
	w.recent = slices.Insert(w.recent, 0, spec)
	w.Want(spec, warm.Min, warm.Max)
}

// withoutTenant is spec as Sandbox("") of its tool tells it.
func withoutTenant(spec sandbox.Spec) sandbox.Spec {
	_, tool, _ := strings.Cut(spec.Owner, "/")
	spec.Owner = "/" + tool
	return spec
}

// started counts the starts that failed.
func (w *warmPool) started(s sandbox.PoolStart) {
	if s.Err == nil {
		return
	}
	k := w.Kind(s.Spec)
	w.metrics.SandboxFailed(k.Runtime)
	if s.Refill {
		w.metrics.RefillFailed(k.Runtime, k.Isolation)
	}
}
