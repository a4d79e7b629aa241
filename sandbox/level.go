package sandbox

import (
	"cmp"
	"time"
)

// PoolStats counts the sandboxes of a pool by what they are doing.
type PoolStats struct {
	Warm     int // started, and waiting for a call
	Starting int // on their way, for the pool or for a call
	InUse    int // handed out by Get and not yet released
	Closing  int // being removed
}

// Stats counts the pool's sandboxes.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := PoolStats{Starting: p.starting + p.cold, InUse: len(p.inUse), Closing: p.closing}
	for _, sh := range p.shelves {
		st.Warm += len(sh.warm)
	}
	return st
}

// Kind is what the levels of a pool are told by: names that an operator wrote,
// and never a tenant's.
type Kind struct{ Runtime, Isolation string }

// Level is how full a pool is of one kind of sandbox.
type Level struct {
	Warm   int // started, and waiting for a call
	Target int // that should be
}

// Levels tells the level of every kind that was ever wanted; one that is wanted
// no more is at zero.
func (p *Pool) Levels() map[Kind]Level {
	p.mu.Lock()
	defer p.mu.Unlock()
	levels := make(map[Kind]Level, len(p.kinds))
	for k := range p.kinds {
		levels[k] = Level{}
	}
	p.allot(time.Now())
	for spec, sh := range p.shelves {
		k := p.Kind(spec)
		l := levels[k]
		l.Warm += len(sh.warm)
		l.Target += sh.places
		levels[k] = l
	}
	return levels
}

// Kind is the kind that sandboxes of spec are of.
func (p *Pool) Kind(spec Spec) Kind {
	return Kind{Runtime: cmp.Or(spec.Runtime, p.cfg.Runtime.Name()), Isolation: cmp.Or(spec.Isolation, "container")}
}
