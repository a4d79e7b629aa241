package blob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"
)

// Usage knows how many bytes each tenant's blobs hold, whoever put them. It
// follows the descriptions of the store, which are one small message a blob, and
// lets each go when the store does, at [MaxAge]; a store has no sum that could
// be asked for. Make one with [Store.Usage]. It is safe for concurrent use, and
// takes about 150 bytes a blob.
type Usage struct {
	store *Store

	mu      sync.Mutex
	seq     uint64 // of the description that was read last
	tenants map[string]*holding
}

// holding is what one tenant's blobs hold.
type holding struct {
	bytes int64
	blobs []held // oldest first
}

type held struct {
	name string
	size int64
	at   time.Time
}

// Usage returns the store's Usage. It knows nothing before [Usage.Run] has read.
func (s *Store) Usage() *Usage {
	return &Usage{store: s, tenants: map[string]*holding{}}
}

// Held is how many bytes the tenant's blobs hold at now, by the server's clock.
// It may be a moment old.
func (u *Usage) Held(tenant string, now time.Time) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	h := u.tenants[tenant]
	if h == nil {
		return 0
	}
	gone := 0
	for gone < len(h.blobs) && h.blobs[gone].at.Add(MaxAge).Before(now) {
		h.bytes -= h.blobs[gone].size
		gone++
	}
	h.blobs = slices.Delete(h.blobs, 0, gone)
	return h.bytes
}

// Frees is when, by age alone, the tenant's blobs will hold less than limit.
// The zero time when they do so already.
func (u *Usage) Frees(tenant string, limit int64) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	h := u.tenants[tenant]
	if h == nil || h.bytes < limit {
		return time.Time{}
	}
	left := h.bytes
	for _, b := range h.blobs {
		if left -= b.size; left < limit {
			return b.at.Add(MaxAge)
		}
	}
	return time.Time{}
}

// take notes what a description says. Each comes once, in the order of the
// stream; another tool's delete comes as a description of what is deleted.
func (u *Usage) take(seq uint64, at time.Time, data []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if seq <= u.seq {
		return
	}
	u.seq = seq
	var obj jetstream.ObjectInfo
	if json.Unmarshal(data, &obj) != nil {
		return // nobody can read this blob
	}
	tenant, _, ours := strings.Cut(obj.Name, "/")
	if !ours {
		return
	}
	h := u.tenants[tenant]
	if h == nil {
		h = &holding{}
		u.tenants[tenant] = h
	}
	if !obj.Deleted {
		h.bytes += int64(obj.Size)
		h.blobs = append(h.blobs, held{obj.Name, int64(obj.Size), at})
		return
	}
	// Deletes are rare and may look at every blob; puts may not.
	if i := slices.IndexFunc(h.blobs, func(b held) bool { return b.name == obj.Name }); i >= 0 {
		h.bytes -= h.blobs[i].size
		h.blobs = slices.Delete(h.blobs, i, i+1)
	}
}

// Run reads the descriptions that are there, and every new one, until ctx is
// done. It returns nil.
func (u *Usage) Run(ctx context.Context, logger *slog.Logger) error {
	b := newBackOff()
	for ctx.Err() == nil {
		began := time.Now()
		err := u.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > time.Minute {
			b.Reset()
		}
		logger.Warn("the use of the blob store is read anew", "error", err)
		wait(ctx, b)
	}
	return nil
}

// wait waits as long as b says, or until ctx is done.
func wait(ctx context.Context, b backoff.BackOff) {
	timer := time.NewTimer(b.NextBackOff())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// follow runs one ordered consumer until it ends or ctx is done. The client
// library makes a new one after gaps, missed heartbeats and reconnects.
func (u *Usage) follow(ctx context.Context) error {
	u.mu.Lock()
	from := u.seq + 1
	u.mu.Unlock()
	cons, err := u.store.js.OrderedConsumer(ctx, objects, jetstream.OrderedConsumerConfig{
		FilterSubjects:    []string{"$O." + Bucket + ".M.>"},
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		InactiveThreshold: time.Minute,
	})
	if err != nil {
		return fmt.Errorf("blob: follow: %w", err)
	}
	cc, err := cons.Consume(func(msg jetstream.Msg) {
		if meta, err := msg.Metadata(); err == nil {
			u.take(meta.Sequence.Stream, meta.Timestamp, msg.Data())
		}
	}, jetstream.PullHeartbeat(2*time.Second), jetstream.PullExpiry(30*time.Second))
	if err != nil {
		return fmt.Errorf("blob: follow: %w", err)
	}
	select {
	case <-ctx.Done():
		cc.Stop()
		<-cc.Closed()
		return context.Cause(ctx)
	case <-cc.Closed():
		return errors.New("blob: follow: the consumer ended")
	}
}
