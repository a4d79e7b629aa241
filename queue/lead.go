package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// KeeperBucket is the name of the bucket in which the fleet's one scheduler
	// holds its lease.
	KeeperBucket = "toolfleet_keeper"
	// leaseKey is the entry that the leader writes.
	leaseKey = "scheduler"
	// leaseTTL is how long a leader counts as one after it last said so. Who
	// waits for its place gets it within leaseTTL + leaseTry.
	leaseTTL = 6 * time.Second
	// leaseBeat is how often the leader says so.
	leaseBeat = 2 * time.Second
	// leaseTry is how often others try.
	leaseTry = time.Second
	// leasesPatience is how long servers may take to choose who leads the bucket.
	leasesPatience = time.Minute
)

// leaseConfig is the bucket of the lease, as the client library makes one; it is
// asked through its leader only, by writes that state what they expect.
func leaseConfig(o Options) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                   "KV_" + KeeperBucket,
		Description:            "Toolfleet: who schedules",
		Subjects:               []string{"$KV." + KeeperBucket + ".>"},
		MaxMsgsPerSubject:      1,
		MaxAge:                 leaseTTL,
		AllowMsgTTL:            true,
		SubjectDeleteMarkerTTL: markerTTL,
		MaxBytes:               1 << 20,
		MaxMsgSize:             4 << 10,
		MaxMsgs:                -1,
		MaxConsumers:           -1,
		Storage:                jetstream.FileStorage,
		Discard:                jetstream.DiscardNew,
		Duplicates:             leaseTTL,
		AllowRollup:            true,
		DenyDelete:             true,
		Replicas:               max(o.Replicas, 1),
	}
}

// Lead stands for election as the fleet's scheduler until ctx is done, and has
// term run whenever it is elected. The context of a term ends when the lease
// is lost; when term returns, the lease is given back. id tells who leads, to
// people.
//
// The lease is not a fence: a process that was stopped for longer than the lease
// lasts believes for a moment that it leads, beside another. What leaders do
// must bear that. A scheduler's work does: READY takes a call once, and the log
// fences its start.
//
// Lead returns nil when ctx is done, and an error when the bucket cannot be
// opened.
func (q *Queue) Lead(ctx context.Context, id string, term func(context.Context)) error {
	kv, err := q.leases(ctx)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("queue: bucket %s: %w", KeeperBucket, err)
	}
	for ctx.Err() == nil {
		l := lease{kv: kv, id: []byte(id)}
		if l.take(ctx) {
			l.hold(ctx, term)
		}
		pause(ctx, leaseTry)
	}
	return nil
}

// leases opens the bucket. Servers that do not answer may be choosing who leads
// it, which is no reason to end a dispatcher.
func (q *Queue) leases(ctx context.Context) (kv jetstream.KeyValue, err error) {
	try := func() error {
		if _, err = q.opts.open(ctx, q.js, leaseConfig(q.opts)); err == nil {
			kv, err = q.js.KeyValue(ctx, KeeperBucket)
		}
		if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode != noMetaLeader {
			return backoff.Permanent(err)
		}
		return err
	}
	err = backoff.Retry(try, backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithMaxElapsedTime(leasesPatience)), ctx))
	return kv, err
}

// noMetaLeader is the server's code for a cluster that cannot answer yet.
const noMetaLeader jetstream.ErrorCode = 10008

// Leader says who schedules, by the id that it gave to [Queue.Lead]; "" when
// nobody does at the moment.
func (q *Queue) Leader(ctx context.Context) (string, error) {
	kv, err := q.js.KeyValue(ctx, KeeperBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return "", nil // nobody has stood for election yet
	}
	if err == nil {
		var held jetstream.KeyValueEntry
		if held, err = kv.Get(ctx, leaseKey); err == nil {
			return string(held.Value()), nil
		}
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return "", nil
		}
	}
	return "", fmt.Errorf("queue: who schedules: %w", err)
}

// lease is one term.
type lease struct {
	kv  jetstream.KeyValue
	id  []byte
	rev uint64
	// until is when others may believe that it is over. It counts from before
	// the server was asked.
	until time.Time
}

// take takes the lease if nobody holds it. A server that does not answer is
// asked again by the next try.
func (l *lease) take(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, leaseBeat)
	defer cancel()
	until := time.Now().Add(leaseTTL)
	rev, err := l.kv.Create(ctx, leaseKey, l.id)
	l.rev, l.until = rev, until
	return err == nil
}

// hold runs term and renews the lease beside it.
func (l *lease) hold(ctx context.Context, term func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() { // ends with the term, which is waited for
		defer close(done)
		defer cancel()
		term(ctx)
	}()
	l.renew(ctx)
	cancel()
	<-done
	l.giveBack(ctx)
}

// renew says that the lease is held, again and again, until ctx is done or it
// is held no more.
func (l *lease) renew(ctx context.Context) {
	ticker := time.NewTicker(leaseBeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		until := time.Now().Add(leaseTTL)
		one, cancel := context.WithDeadline(ctx, l.until)
		rev, err := l.kv.Update(one, leaseKey, l.id, l.rev)
		cancel()
		switch {
		case err == nil:
			l.rev, l.until = rev, until
		case errors.Is(err, jetstream.ErrKeyRevisionMismatch), !time.Now().Before(l.until):
			return
		}
	}
}

// giveBack lets another lead at once, unless one does already.
func (l *lease) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseBeat)
	defer cancel()
	_ = l.kv.Delete(ctx, leaseKey, jetstream.LastRevision(l.rev)) // when it fails, the lease runs out
}
