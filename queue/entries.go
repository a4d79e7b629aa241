package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// entries is a bucket in which each process of a kind has an entry that expires
// unless it is written again: who is in it lives. The server does the sweeping.
type entries struct {
	kv     jetstream.KeyValue
	stream jetstream.Stream // below kv
	life   time.Duration    // of an entry that is not written again
}

// markerTTL is how long a marker tells watchers that an entry expired.
const markerTTL = time.Minute

// openEntries creates or checks the bucket, or binds to it. Of the options it
// heeds Replicas, Bind and AckWait, which is the entries' life.
func openEntries(ctx context.Context, js jetstream.JetStream, o Options, bucket, description string) (entries, error) {
	e := entries{life: or(o.AckWait, WorkerTTL)}
	var err error
	if e.stream, err = o.open(ctx, js, entriesConfig(o, bucket, description, e.life)); err != nil {
		return entries{}, fmt.Errorf("queue: bucket %s: %w", bucket, err)
	}
	if e.kv, err = js.KeyValue(ctx, bucket); err != nil {
		return entries{}, fmt.Errorf("queue: bucket %s: %w", bucket, err)
	}
	return e, nil
}

// entriesConfig is what the client library makes of a bucket, but for one thing:
// it lets any replica answer, and one that lags might call a living worker dead.
// Who is dead decides what is given up, so the leader says it.
func entriesConfig(o Options, bucket, description string, life time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                   "KV_" + bucket,
		Description:            description,
		Subjects:               []string{"$KV." + bucket + ".>"},
		MaxMsgsPerSubject:      1,
		MaxAge:                 life,
		AllowMsgTTL:            true,
		SubjectDeleteMarkerTTL: markerTTL,
		MaxBytes:               16 << 20,
		MaxMsgSize:             16 << 10,
		MaxMsgs:                -1,
		MaxConsumers:           -1,
		Storage:                jetstream.FileStorage,
		Discard:                jetstream.DiscardNew,
		Duplicates:             life,
		AllowRollup:            true,
		DenyDelete:             true,
		Replicas:               max(o.Replicas, 1),
	}
}

// beats is how often an entry is written: three times in its life, so that two
// may be lost.
func (e entries) beats() time.Duration { return e.life / 3 }

// put writes an entry, in the time until the next is due.
func (e entries) put(ctx context.Context, key string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, e.beats())
	defer cancel()
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = e.kv.Put(ctx, key, data)
	return err
}

// each tells take of every entry that there is.
func (e entries) each(ctx context.Context, take func(jetstream.KeyValueEntry)) error {
	return e.walk(ctx, take, jetstream.IgnoreDeletes())
}

// remove ends an entry of which its owner takes leave. A deletion would expire in
// its turn and leave a marker, as an entry does whose owner has died; the server
// takes a purge for a marker already.
func (e entries) remove(ctx context.Context, key string) error {
	return e.kv.Purge(ctx, key)
}

// expired returns the revisions, after one, of the markers of entries that were
// written no more and of which nobody took leave. The server keeps a marker for
// markerTTL, or until the entry is written again.
func (e entries) expired(ctx context.Context, after uint64) ([]uint64, error) {
	var candidates, revisions []uint64
	err := e.walk(ctx, func(entry jetstream.KeyValueEntry) {
		if entry.Operation() == jetstream.KeyValuePurge && entry.Revision() > after {
			candidates = append(candidates, entry.Revision())
		}
	})
	if err != nil {
		return nil, err
	}
	for _, revision := range candidates {
		// The client makes one thing of both kinds of purges, but for this header.
		msg, err := e.stream.GetMsg(ctx, revision)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // it has expired meanwhile, or was written again
		case err != nil:
			return nil, err
		case msg.Header.Get(jetstream.MarkerReasonHeader) == "MaxAge":
			revisions = append(revisions, revision)
		}
	}
	return revisions, nil
}

func (e entries) walk(ctx context.Context, take func(jetstream.KeyValueEntry), opts ...jetstream.WatchOpt) error {
	watch, err := e.kv.WatchAll(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() { _ = watch.Stop() }() // fails on a closed connection only
	for {
		select {
		case entry := <-watch.Updates():
			if entry == nil { // everything that was there has come
				return nil
			}
			take(entry)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// maxProblem bounds what an entry says about what is wrong, in bytes: the
// sentence may quote what a runtime or a kernel said, and an entry has to fit.
const maxProblem = 512

func bounded(problem string) string {
	if len(problem) <= maxProblem {
		return problem
	}
	return strings.ToValidUTF8(problem[:maxProblem], "") + "…"
}
