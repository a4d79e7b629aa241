package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/metrics"
)

// Where a tool comes from.
const (
	FromFile   = "file"
	FromBucket = "bucket"
)

// FollowerConfig says what a [Follower] follows. All of it may be left out.
type FollowerConfig struct {
	// Dir has the tool files of this process; empty means none.
	Dir string
	// Tools are served as files are that never change, by a process without Dir.
	Tools []Spec
	// Store is the bucket of the fleet; nil means none.
	Store *Store
	// Metrics may be nil, and so may Logger.
	Metrics *metrics.Metrics
	Logger  *slog.Logger
}

// Follower keeps a [Catalog] as its sources are: the files below a directory and
// the fleet's bucket, together. Where both have a tool of one name the file wins:
// whoever gave this process a file meant this process.
//
// A change is followed within a second, and as a whole. Files that have faults
// change nothing: what was read before stays, as it does while the bucket cannot
// be read. A single tool of the bucket that this process cannot serve, such as one
// that a newer version wrote, is left out, and nothing else. Either is logged once
// and told by [Follower.State] for as long as it lasts.
//
// Make one with [Follow], and run it. It is safe for concurrent use.
type Follower struct {
	FollowerConfig
	catalog *Catalog

	reading sync.Mutex // held while a source is read; guards what follows
	files   []located
	bucket  bucketTools
	faults  map[string][]string // by source, of the last reading

	mu      sync.Mutex // guards state and changed
	state   State
	changed chan struct{} // closed at the next change of state
}

// Follow reads the sources for the first time. A directory with faults, or
// without tools, is an error, as is a bucket that does not answer for a minute:
// without its tools a dispatcher would refuse calls of tools that there are.
func Follow(ctx context.Context, c FollowerConfig) (*Follower, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Follower{FollowerConfig: c, catalog: &Catalog{}, faults: map[string][]string{}, changed: make(chan struct{})}
	if err := f.readFiles(); err != nil {
		return nil, err
	}
	err := backoff.Retry(func() error {
		if err := f.readBucket(ctx); err != nil && ctx.Err() != nil {
			return backoff.Permanent(context.Cause(ctx))
		} else if err != nil {
			return err
		}
		return nil
	}, backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithMaxElapsedTime(time.Minute)), ctx))
	if err != nil {
		return nil, err
	}
	return f, f.publish()
}

// Catalog is the catalogue that is kept.
func (f *Follower) Catalog() *Catalog { return f.catalog }

const (
	// lookEvery is how often files are looked at. A change is read when they were
	// found the same twice: files that are being written are left in peace.
	lookEvery = 250 * time.Millisecond
	// readEvery is how often the bucket is read although nothing was heard of a
	// change, and retryEvery how often while it cannot be.
	readEvery  = 10 * time.Second
	retryEvery = time.Second
)

// Run follows the sources until ctx is done, and returns nil then.
func (f *Follower) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.followFiles(ctx) })
	g.Go(func() error { return f.followBucket(ctx) })
	return g.Wait()
}

func (f *Follower) followFiles(ctx context.Context) error {
	if f.Dir == "" {
		return nil
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var read, seen string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		was := seen
		if seen = fingerprint(f.Dir); seen == was && seen != read {
			read = seen
			f.Reload()
		}
	}
}

// Reload reads the files now. What is wrong with them is in the state.
func (f *Follower) Reload() {
	f.reading.Lock()
	defer f.reading.Unlock()
	if err := f.readFiles(); err == nil {
		f.tell(f.publish())
	}
}

func (f *Follower) followBucket(ctx context.Context) error {
	if f.Store == nil {
		return nil
	}
	nudges := make(chan struct{}, 1)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for ctx.Err() == nil {
			err := f.Store.watch(ctx, func() {
				select {
				case nudges <- struct{}{}:
				default: // there is one
				}
			})
			if err != nil && ctx.Err() == nil {
				f.Logger.Debug("the watch of the catalogue begins anew", "error", err)
				sleep(ctx, retryEvery)
			}
		}
		return nil
	})
	g.Go(func() error {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-nudges:
			case <-timer.C:
			}
			next := readEvery
			if f.Refresh(ctx) != nil {
				next = retryEvery
			}
			timer.Reset(next)
		}
	})
	return g.Wait()
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Refresh reads the bucket now. The error says that it could not be read; what
// was read before stays.
func (f *Follower) Refresh(ctx context.Context) error {
	f.reading.Lock()
	defer f.reading.Unlock()
	if err := f.readBucket(ctx); err != nil {
		return err
	}
	f.tell(f.publish())
	return nil
}

// Apply changes the bucket and, when it returns, follows that already: whoever
// applied a tool can call it.
func (f *Follower) Apply(ctx context.Context, c Change) (Outcome, error) {
	if f.Store == nil {
		return Outcome{}, errors.New("catalog: this process has no bucket to change")
	}
	out, err := f.Store.Apply(ctx, c)
	if err == nil && out.Moves() && !c.DryRun {
		_ = f.Refresh(ctx) // it is in the bucket, and the watch will read it
	}
	return out, err
}

// readFiles reads the directory. The caller holds reading.
func (f *Follower) readFiles() error {
	if f.Dir == "" {
		return f.takeTools()
	}
	files, err := load(nil, f.Dir)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no tool.yaml or *.tool.yaml is in %s; name the directory of your tools with --tools", f.Dir)
	}
	f.note(FromFile, "what was read before stays", faultsOf(err))
	if err == nil {
		f.files = files
	}
	return err
}

// takeTools serves what this process was given in place of files.
func (f *Follower) takeTools() error {
	f.files = nil
	for _, spec := range f.Tools {
		spec.SetDefaults()
		if err := spec.Validate(); err != nil {
			return fmt.Errorf("catalog: tool %q: %w", cut(spec.Name), err)
		}
		f.files = append(f.files, located{spec: spec, digest: spec.Digest()})
	}
	return nil
}

// faultsOf is one sentence for each fault.
func faultsOf(err error) (sentences []string) {
	problems, ok := errors.AsType[Problems](err)
	switch {
	case ok:
		for _, p := range problems {
			sentences = append(sentences, p.String())
		}
	case err != nil:
		sentences = []string{err.Error()}
	}
	return sentences
}

// tell logs what publish says; it cannot fail for what was read with care.
func (f *Follower) tell(err error) {
	if err != nil {
		f.Logger.Error("the catalogue stays as it was", "error", err)
	}
}
