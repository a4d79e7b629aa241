package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// bucketTools is what was read of the bucket.
type bucketTools struct {
	set   Set
	tools map[string]*Spec  // by name, those that can be served
	seen  map[string]answer // by digest and name, of the set
}

// answer is what came of a declaration: its tool, or why there is none. What a
// digest names never changes, so no tool is read twice.
type answer struct {
	spec *Spec
	err  error
}

// readParallel is how many declarations are asked for at once.
const readParallel = 8

// readBucket reads the bucket. The error says that it could not be read; then
// nothing changes. The caller holds reading.
func (f *Follower) readBucket(ctx context.Context) error {
	if f.Store == nil {
		return nil
	}
	next, err := f.fetch(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		f.note(FromBucket, "what was read before stays", faultsOf(err))
		return err
	}
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(next.set.Tools)) {
		if a := next.seen[next.set.Tools[name]+name]; a.err != nil {
			faults = append(faults, fmt.Sprintf("tool %q is not served: %v", cut(name), a.err))
		}
	}
	f.note(FromBucket, "tools are not served", faults)
	f.bucket = next
	return nil
}

// fetch reads the set and those of its declarations that are new. A declaration
// that is not there is looked for in a set that may be newer, once.
func (f *Follower) fetch(ctx context.Context) (next bucketTools, err error) {
	for range 3 {
		if next.set, err = f.Store.Set(ctx); err != nil {
			return next, err
		}
		if next.set.Revision == f.bucket.set.Revision && next.set.Changed.Equal(f.bucket.set.Changed) && f.bucket.whole() {
			return f.bucket, nil
		}
		if next, err = f.declarations(ctx, next.set); err != nil || next.whole() {
			return next, err
		}
	}
	return next, nil
}

// whole reports whether no declaration was missing.
func (b *bucketTools) whole() bool {
	for _, a := range b.seen {
		if errors.Is(a.err, errMissing) {
			return false
		}
	}
	return true
}

// declarations reads what the set names.
func (f *Follower) declarations(ctx context.Context, set Set) (bucketTools, error) {
	next := bucketTools{set: set, tools: make(map[string]*Spec, len(set.Tools)), seen: make(map[string]answer, len(set.Tools))}
	var mu sync.Mutex // guards next
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readParallel)
	for name, digest := range set.Tools {
		g.Go(func() error {
			a, known := f.bucket.seen[digest+name]
			if !known || a.err != nil {
				spec, err := f.Store.spec(ctx, name, digest)
				if err != nil && !errors.Is(err, errMissing) && !errors.Is(err, errUnreadable) {
					return err
				}
				a = answer{&spec, err}
			}
			mu.Lock()
			defer mu.Unlock()
			next.seen[digest+name] = a
			if a.err == nil {
				next.tools[name] = a.spec
			}
			return nil
		})
	}
	err := g.Wait()
	return next, err
}
