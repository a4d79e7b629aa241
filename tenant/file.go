package tenant

import (
	"fmt"
	"maps"
	"slices"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// Kind is the kind of a tenants file.
const Kind = "Tenants"

// file is a tenants file as it is written:
//
//	apiVersion: toolfleet/v1
//	kind: Tenants
//	default: {callsPerMinute: 600, maxWaiting: 1000}
//	tenants:
//	  acme: {weight: 4, callsPerMinute: 6000, blobBytes: 1Gi}
//
// "default" is for every tenant that the file does not name, and for what a
// named one does not say: whoever gives a tenant a larger share does not lift
// its quotas by that. A named tenant that is to have no limit says 0. The
// tenant of a fleet without tokens is called default, too; it is one of those
// that no entry names.
type file struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Default    entry            `json:"default"`
	Tenants    map[string]entry `json:"tenants"`
}

// table is what a file says.
type table struct {
	others Limits
	named  map[string]Limits
}

func (t *table) of(tenant string) Limits {
	if l, ok := t.named[tenant]; ok {
		return l
	}
	return t.others
}

// parse reads a file. The error is [catalog.Problems].
func parse(data []byte) (*table, error) {
	var f file
	expected := "tenants (apiVersion: " + catalog.APIVersion + ", kind: " + Kind + ", …)"
	if err := catalog.Decode(data, expected, &f, f.faults); err != nil {
		return nil, err
	}
	t := &table{others: f.Default.over(none), named: make(map[string]Limits, len(f.Tenants))}
	for name, e := range f.Tenants {
		t.named[name] = e.over(t.others)
	}
	return t, nil
}

// faults lists everything that is wrong with what was read.
func (f *file) faults() (problems catalog.Problems) {
	fault := func(field, format string, args ...any) {
		problems = append(problems, catalog.Problem{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if f.APIVersion != catalog.APIVersion {
		fault("apiVersion", "expected %s", catalog.APIVersion)
	}
	if f.Kind != Kind {
		fault("kind", "expected %s", Kind)
	}
	f.Default.faults("default", fault)
	for _, name := range slices.Sorted(maps.Keys(f.Tenants)) {
		field := "tenants." + name
		if !call.ValidTenant(name) {
			fault(field, "a tenant's name must match [a-z0-9-]{1,63}")
		}
		f.Tenants[name].faults(field, fault)
	}
	return problems
}

func (e entry) faults(field string, fault func(field, format string, args ...any)) {
	if w := e.Weight; w != nil && (*w < 1 || *w > MaxWeight) {
		fault(field+".weight", "must be from 1 to %d", MaxWeight)
	}
	count := func(name string, n *int) {
		if n != nil && (*n < 0 || *n > MaxCount) {
			fault(field+"."+name, "must be from 0 (no limit) to %d", MaxCount)
		}
	}
	count("maxInFlight", e.MaxInFlight)
	count("callsPerMinute", e.CallsPerMinute)
	count("maxWaiting", e.MaxWaiting)
}
