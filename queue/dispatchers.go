package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// DispatchersBucket is the name of the bucket of living dispatchers.
const DispatchersBucket = "toolfleet_dispatchers"

// DispatcherInfo is what a dispatcher tells about itself, to people: nothing is
// decided by it.
type DispatcherInfo struct {
	// ID is the name under which it stands for election (see [Queue.Lead]).
	ID      string    `json:"id"`
	Version string    `json:"version,omitempty"`
	Started time.Time `json:"started"`
	// Problem says why it is not ready, and what to do; empty when it is.
	Problem string `json:"problem,omitempty"`
	// Beat is when the server took the last heartbeat, by its clock. List sets it.
	Beat time.Time `json:"-"`
}

// Dispatchers is the bucket of living dispatchers. It is safe for concurrent use.
type Dispatchers struct{ entries entries }

// OpenDispatchers creates or checks the bucket. It heeds the options that
// [OpenRegistry] does.
func OpenDispatchers(ctx context.Context, js jetstream.JetStream, o Options) (*Dispatchers, error) {
	e, err := openEntries(ctx, js, o, DispatchersBucket, "Toolfleet: dispatchers that are alive")
	return &Dispatchers{e}, err
}

// Run keeps a dispatcher's entry under key until ctx is done, then deletes it.
// info is called at every beat. failed is told when a beat fails that followed
// one that did not, and with nil when it works again: a dispatcher that cannot
// be listed, for servers that do not allow it yet or are away, serves all the
// same.
func (d *Dispatchers) Run(ctx context.Context, key string, info func() DispatcherInfo, failed func(error)) {
	ticker := time.NewTicker(d.entries.beats())
	defer ticker.Stop()
	for failing := false; ; {
		i := info()
		i.Problem = bounded(i.Problem)
		err := d.entries.put(ctx, key, i)
		if ctx.Err() == nil && (err != nil) != failing {
			failing = err != nil
			failed(err)
		}
		select {
		case <-ctx.Done():
			d.leave(ctx, key)
			return
		case <-ticker.C:
		}
	}
}

// leave deletes the entry, so that who looks need not wait until it expires.
func (d *Dispatchers) leave(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.entries.beats())
	defer cancel()
	_ = d.entries.remove(ctx, key) // when it fails, the entry expires
}

// List lists the living dispatchers. One whose entry cannot be read is listed by
// its key alone.
func (d *Dispatchers) List(ctx context.Context) ([]DispatcherInfo, error) {
	list := []DispatcherInfo{}
	err := d.entries.each(ctx, func(e jetstream.KeyValueEntry) {
		var i DispatcherInfo
		if err := json.Unmarshal(e.Value(), &i); err != nil || i.ID == "" {
			i = DispatcherInfo{ID: e.Key()}
		}
		i.Beat = e.Created()
		list = append(list, i)
	})
	if err != nil {
		return nil, fmt.Errorf("queue: list dispatchers: %w", err)
	}
	return list, nil
}
