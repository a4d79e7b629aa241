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

	mu     sync.Mutex                    // guards what follows, and goes before the pool's own
	kept   map[sandbox.Spec]catalog.Warm // what the tools say; cells by a spec whose owner has no tenant
	recent []sandbox.Spec                // of cells, wanted; the last used first
}

// newWarmPool wants nothing yet.
func newWarmPool(cfg sandbox.PoolConfig, m *metrics.Metrics) *warmPool {
	w := &warmPool{metrics: m}
	cfg.OnStart = w.started
	w.Pool = sandbox.NewPool(cfg)
	return w
}

// follow wants what tools, all of one class, say is to be kept, and nothing else
// any more. What a tool says of its cells is kept for the tenants that it names,
// or the default one; for any other tenant it is what its calls need, up to the
// tool's max.
func (w *warmPool) follow(tools []catalog.Spec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.kept
	w.kept = warmth(tools)
	for spec := range was {
		if _, still := w.kept[spec]; !still && spec.Isolation != catalog.IsolationCell {
			w.Want(spec, 0, 0)
		}
	}
	for spec, warm := range w.kept {
		if spec.Isolation != catalog.IsolationCell && was[spec] != warm {
			w.Want(spec, warm.Min, warm.Max)
		}
	}
	w.forgetCells(was)
	for i := range tools {
		t := &tools[i]
		if warm := w.kept[t.Sandbox("")]; t.Isolation == catalog.IsolationCell && warm.Min > 0 {
			for _, tenant := range ahead(t) {
				w.wantCells(t.Sandbox(tenant), warm)
			}
		}
	}
}

// forgetCells gives up the cells of tools that are not there any more, or want
// another number of them kept: those are wanted anew.
func (w *warmPool) forgetCells(was map[sandbox.Spec]catalog.Warm) {
	w.recent = slices.DeleteFunc(w.recent, func(spec sandbox.Spec) bool {
		key := withoutTenant(spec)
		warm, still := w.kept[key]
		if still && was[key] == warm {
			return false
		}
		w.Want(spec, 0, 0)
		return true
	})
}

// ahead are the tenants for whom a tool's cells are kept before their first call.
func ahead(t *catalog.Spec) []string {
	if len(t.Tenants) == 0 {
		return []string{call.DefaultTenant}
	}
	return t.Tenants
}

// warmth adds up what tools of one class want to be kept warm. Tools whose
// sandboxes are alike share them: a sandbox does not know its tool before the
// call comes. Cells are told by a spec without a tenant.
func warmth(tools []catalog.Spec) map[sandbox.Spec]catalog.Warm {
	sum := map[sandbox.Spec]catalog.Warm{}
	for i := range tools {
		t := &tools[i]
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
		w.want(spec)
	}
	sb, hit, err := w.Pool.Take(ctx, spec, cold)
	k := w.Kind(spec)
	w.metrics.PoolGet(k.Runtime, k.Isolation, hit)
	return sb, hit, err
}

// want has cells kept that a call asks for.
func (w *warmPool) want(spec sandbox.Spec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A spec that is not the catalogue's, of a job that waited while the tool was
	// changed, is served and not kept.
	if warm, ok := w.kept[withoutTenant(spec)]; ok {
		w.wantCells(spec, catalog.Warm{Max: warm.Max})
	}
}

// wantCells has cells kept, or notes that those which are were used. What they
// were wanted with first stays. The caller holds mu.
func (w *warmPool) wantCells(spec sandbox.Spec, warm catalog.Warm) {
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
