package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// WorkerInfo is what a worker tells about itself in the bucket
// toolfleet_workers.
type WorkerInfo struct {
	ID          string    `json:"id"`
	Incarnation string    `json:"incarnation"`
	Host        string    `json:"host"`
	Version     string    `json:"version,omitempty"`
	Class       string    `json:"class"`
	Runtimes    []string  `json:"runtimes"`
	Slots       int       `json:"slots"`
	Busy        int       `json:"busy"`
	Started     time.Time `json:"started"`
	// Warm is how many idle sandboxes are started and WarmTarget how many should
	// be; Sandboxes counts all that may have something on the host.
	Warm       int `json:"warm,omitempty"`
	WarmTarget int `json:"warmTarget,omitempty"`
	Sandboxes  int `json:"sandboxes,omitempty"`
	// Draining says that the worker was told to stop: it ends what it has and
	// takes nothing more.
	Draining bool `json:"draining,omitempty"`
	// Problem says why it takes no calls, and what to do; empty when it does.
	Problem string `json:"problem,omitempty"`
	// Beat is when the server took the last heartbeat, by its clock. List sets
	// it; a worker does not know.
	Beat time.Time `json:"-"`
}

const (
	// WorkersBucket is the name of the bucket of living workers.
	WorkersBucket = "toolfleet_workers"
	// WorkerTTL is how long a worker counts as alive after its last heartbeat,
	// unless [Options.AckWait] says otherwise. It beats three times as often.
	WorkerTTL = 15 * time.Second
)

// Registry is the bucket of living workers. It is safe for concurrent use.
type Registry struct {
	// Patience is how long after this process reached the server, or the bucket
	// did not answer, a worker that is not registered still counts as alive.
	// Entries expire also while the server is away, or the bucket has no leader,
	// and only then do their workers beat again: without patience every worker
	// would be dead for the moment after an outage, and what they run given up.
	// [OpenRegistry] sets the entries' life; it is not changed once the registry is
	// in use.
	Patience time.Duration

	entries entries
	nc      *nats.Conn
	told    chan struct{} // see Tell

	mu         sync.Mutex // guards what follows
	reached    time.Time  // when server and bucket were reached again the last time
	reconnects uint64     // as of then
	beatErr    error      // of the last beat
	lost       uint64     // revision of the last marker that Lost has counted
	counting   bool       // Lost was asked before
}

// OpenRegistry creates or checks the bucket, or binds to it. Of the options it
// heeds Replicas, Bind and AckWait: a worker and what it works on live as long.
func OpenRegistry(ctx context.Context, js jetstream.JetStream, o Options) (*Registry, error) {
	e, err := openEntries(ctx, js, o, WorkersBucket, "Toolfleet: workers that are alive")
	if err != nil {
		return nil, err
	}
	nc := js.Conn()
	return &Registry{Patience: e.life, entries: e, nc: nc, told: make(chan struct{}, 1), reached: time.Now(), reconnects: nc.Stats().Reconnects}, nil
}

// Run registers a worker, beats until ctx is done, then deletes the entry.
// info is called at every beat. A beat that fails is made good by the next
// one (see [Registry.Beating]); Run fails only when the first one does.
func (r *Registry) Run(ctx context.Context, info func() WorkerInfo) error {
	if err := r.beat(ctx, info()); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	ticker := time.NewTicker(r.entries.beats())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return r.leave(ctx, info())
		case <-ticker.C:
		case <-r.told:
		}
		err := r.beat(ctx, info())
		r.mu.Lock()
		if r.beatErr = err; err != nil {
			r.reached = time.Now() // not before
		}
		r.mu.Unlock()
	}
}

// Tell makes Run beat now and not when the next beat is due, for what others
// should know at once: a drain may be over before that.
func (r *Registry) Tell() {
	select {
	case r.told <- struct{}{}:
	default: // it is about to
	}
}

func (r *Registry) beat(ctx context.Context, w WorkerInfo) error {
	w.Problem = bounded(w.Problem)
	if err := r.entries.put(ctx, w.ID, w); err != nil {
		return fmt.Errorf("queue: register worker %s: %w", w.ID, err)
	}
	return nil
}

// Beating says why the last beat failed; nil means that it did not. A worker
// that does not beat counts as dead.
func (r *Registry) Beating() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.beatErr
}

// leave deletes the entry, unless another incarnation has taken it over.
func (r *Registry) leave(ctx context.Context, w WorkerInfo) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.entries.beats())
	defer cancel()
	switch alive, err := r.Alive(ctx, w.ID, w.Incarnation); {
	case err != nil:
		return err
	case !alive:
		return nil
	}
	if err := r.entries.remove(ctx, w.ID); err != nil {
		return fmt.Errorf("queue: sign off worker %s: %w", w.ID, err)
	}
	return nil
}

// Alive reports whether that incarnation of the worker beats. A worker that
// was started again is another incarnation, so the old one is dead at once. One
// that is not there is dead unless the registry has to be patient.
func (r *Registry) Alive(ctx context.Context, id, incarnation string) (bool, error) {
	patient := r.patient()
	e, err := r.entries.kv.Get(ctx, id)
	switch {
	case errors.Is(err, jetstream.ErrInvalidKey):
		return false, nil
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return patient, nil
	case err != nil:
		// What does not answer takes no beats either.
		r.mu.Lock()
		r.reached = time.Now()
		r.mu.Unlock()
		return false, fmt.Errorf("queue: look for worker %s: %w", id, err)
	}
	var w WorkerInfo
	if err := json.Unmarshal(e.Value(), &w); err != nil {
		return false, fmt.Errorf("queue: worker %s: %w", id, err)
	}
	return w.Incarnation == incarnation, nil
}

// patient reports whether a living worker may not have had the time to beat.
func (r *Registry) patient() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.nc.Stats().Reconnects; n != r.reconnects {
		r.reached, r.reconnects = time.Now(), n
	}
	return time.Since(r.reached) < r.Patience
}

// List lists the living workers. One whose entry cannot be read, which a newer
// version may have written, is listed by its id alone: it lives.
func (r *Registry) List(ctx context.Context) ([]WorkerInfo, error) {
	workers := []WorkerInfo{}
	err := r.entries.each(ctx, func(e jetstream.KeyValueEntry) {
		var w WorkerInfo
		if err := json.Unmarshal(e.Value(), &w); err != nil {
			w = WorkerInfo{}
		}
		w.ID, w.Beat = e.Key(), e.Created() // an entry speaks for nobody else
		workers = append(workers, w)
	})
	if err != nil {
		return nil, fmt.Errorf("queue: list workers: %w", err)
	}
	return workers, nil
}

// Lost counts the workers that stopped beating without signing off since it was
// asked last, in this process; the first time it is 0. Asked less often than once
// a minute it misses some. While the registry is patient it counts nobody: a worker
// that was cut off beats again, and is not lost.
func (r *Registry) Lost(ctx context.Context) (int, error) {
	if r.patient() {
		return 0, nil
	}
	r.mu.Lock()
	after := r.lost
	r.mu.Unlock()
	revisions, err := r.entries.expired(ctx, after)
	if err != nil {
		return 0, fmt.Errorf("queue: look for lost workers: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n, last := 0, r.lost // another may have asked meanwhile
	for _, revision := range revisions {
		if revision > last {
			n++
			r.lost = max(r.lost, revision)
		}
	}
	if !r.counting {
		r.counting = true
		return 0, nil
	}
	return n, nil
}
