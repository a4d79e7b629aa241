package metrics

import (
	"sync"
	"unicode/utf8"
)

// other stands for every value of a label beyond its bound.
const other = "_other"

// The budget: how many different tools and tenants have series of their own. An
// operator wrote either list, and those beyond it share one series.
const (
	maxTools   = 1000
	maxTenants = 200
)

// bounded lets the first max different values of a label through and turns
// all others into "_other". Callers pass names from closed sets; this is the
// belt to those braces, since one raw name that slips into a label is a series
// in every scrape for as long as the process lives.
type bounded struct {
	max int

	mu   sync.RWMutex
	seen map[string]struct{} // guarded by mu
}

func newBounded(n int) *bounded { return &bounded{max: n, seen: make(map[string]struct{})} }

// value returns s, or "_other" when s is one too many or no label value.
func (b *bounded) value(s string) string {
	b.mu.RLock()
	_, ok := b.seen[s]
	b.mu.RUnlock()
	if ok {
		return s
	}
	// Prometheus panics on a label value that is not UTF-8.
	if len(s) > 256 || !utf8.ValidString(s) {
		return other
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.seen[s]; !ok {
		if len(b.seen) >= b.max {
			return other
		}
		b.seen[s] = struct{}{}
	}
	return s
}
