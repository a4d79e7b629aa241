package catalog

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/toolfleet/toolfleet/schema/validate"
)

// Catalog holds the tools of a fleet, with their schemas compiled. It is safe
// for concurrent use; [Catalog.Replace] swaps the whole set at once, so a
// reader never sees half of a change.
type Catalog struct {
	tools atomic.Pointer[map[string]*entry]
}

// entry is one tool, ready to be checked against.
type entry struct {
	spec      Spec
	digest    string
	arguments *validate.Schema
}

// New makes a catalogue of specs, as Replace does.
func New(specs []Spec) (*Catalog, error) {
	c := &Catalog{}
	if err := c.Replace(specs); err != nil {
		return nil, err
	}
	return c, nil
}

// Replace puts specs in the place of all that the catalogue held. Defaults are
// filled in, so specs made in code may be sparse. When one of them is faulty
// or a name stands twice, nothing changes and the error tells all of it.
func (c *Catalog) Replace(specs []Spec) error {
	var was map[string]*entry
	if p := c.tools.Load(); p != nil {
		was = *p
	}
	tools := make(map[string]*entry, len(specs))
	var errs []error
	for _, s := range specs {
		e, err := compile(s, was[s.Name])
		if err == nil && tools[s.Name] != nil {
			err = errors.New("the name is declared twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("catalog: tool %q: %w", cut(s.Name), err))
			continue
		}
		tools[s.Name] = e
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c.tools.Store(&tools)
	return nil
}

// compile makes an entry, or takes the one that was there: a change of one tool
// must not cost the schemas of two thousand others.
func compile(s Spec, was *entry) (*entry, error) {
	s.SetDefaults()
	if was != nil && reflect.DeepEqual(was.spec, s) {
		return was, nil
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	arguments, err := validate.Compile(s.Parameters)
	if err != nil {
		return nil, err
	}
	return &entry{spec: s, digest: s.Digest(), arguments: arguments}, nil
}

// find returns the tool when the tenant may use it. A tool that is hidden from
// a tenant does not exist for it.
func (c *Catalog) find(tenant, name string) *entry {
	e := (*c.tools.Load())[name]
	if e == nil || !e.spec.VisibleTo(tenant) {
		return nil
	}
	return e
}

// Resolve returns the tool that the tenant knows by name. The spec is shared:
// it must not be changed.
func (c *Catalog) Resolve(tenant, name string) (*Spec, bool) {
	e := c.find(tenant, name)
	if e == nil {
		return nil, false
	}
	return &e.spec, true
}

// List returns the tools that the tenant may use, sorted by name. The specs
// are shared: they must not be changed.
func (c *Catalog) List(tenant string) []*Spec {
	tools := *c.tools.Load()
	var list []*Spec
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		if e := tools[name]; e.spec.VisibleTo(tenant) {
			list = append(list, &e.spec)
		}
	}
	return list
}
