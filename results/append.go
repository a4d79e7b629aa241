package results

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// headerRoom is what our headers and the subject may add to a payload.
const headerRoom = 1 << 10

// guarded appends an entry that must not follow a result: the server takes it
// only while the result's subject is empty. A tried again append may stand in
// the log twice, which every kind that is appended so can bear: a claim counts
// by its number, progress is cumulative, a cancel is a wish.
func (l *Log) guarded(ctx context.Context, ref Ref, kind string, data []byte, ttl time.Duration) error {
	result := ref.subject(KindResult)
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequenceForSubject(0, result)}
	if ttl > 0 {
		opts = append(opts, jetstream.WithMsgTTL(ttl))
	}
	release, err := l.flights.acquire(ctx, ref)
	if err != nil {
		return err
	}
	defer release()
	return l.retry(ctx, ref, kind, func() error {
		_, err := l.publish(ctx, ref.subject(kind), data, opts...)
		switch {
		case wrongSequence(err):
			// Either there is a result, or somebody else's guarded append was
			// in flight at the same moment.
			if _, err := l.server.last(ctx, result); err != nil {
				return err
			}
			return backoff.Permanent(ErrEnded)
		case storeFull(err):
			return backoff.Permanent(fmt.Errorf("%w: %w", ErrFull, err))
		}
		return err
	})
}

// fenced appends the one entry that its subject takes. It returns that entry,
// and whether it is the caller's: a lost acknowledgement makes one's own look
// like another's, and the nonce in data tells them apart.
func (l *Log) fenced(ctx context.Context, ref Ref, kind string, data []byte, nonce string) (e Entry, won bool, err error) {
	release, err := l.flights.acquire(ctx, ref)
	if err != nil {
		return Entry{}, false, err
	}
	defer release()
	subject := ref.subject(kind)
	err = l.retry(ctx, ref, kind, func() error {
		seq, err := l.publish(ctx, subject, data, jetstream.WithExpectLastSequencePerSubject(0))
		switch {
		case err == nil:
			e, won = Entry{Seq: seq, Kind: kind, Data: data, ref: ref}, true
		case wrongSequence(err):
			if e, err = l.server.last(ctx, subject); err == nil {
				won = isOurs(e.Data, nonce)
			}
		case storeFull(err) && kind == KindAdmit:
			err = backoff.Permanent(fmt.Errorf("%w: %w", ErrFull, err))
		}
		return err
	})
	return e, won, err
}

// publish sends one message and waits for its acknowledgement, once.
//
// It sends nothing while the server is away. The client library would keep the
// message, and another copy for each try, in a buffer that all of them share
// with the heartbeats, and send them all when the server is back. So what waits
// for the server is with whoever appends: one event for each, and as many
// as a worker has slots.
func (l *Log) publish(ctx context.Context, subject string, data []byte, opts ...jetstream.PublishOpt) (uint64, error) {
	nc := l.js.Conn()
	if limit := nc.MaxPayload(); int64(len(data)) > limit-headerRoom {
		return 0, backoff.Permanent(&TooLarge{Size: int64(len(data)), Limit: limit - headerRoom})
	}
	if err := away(nc); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ack, err := l.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data}, opts...)
	if err != nil {
		return 0, err
	}
	l.appended(ack.Sequence)
	return ack.Sequence, nil
}

// away says that no server can be reached at the moment, or no more.
func away(nc *nats.Conn) error {
	switch {
	case nc.IsConnected():
		return nil
	case nc.IsClosed():
		return nats.ErrConnectionClosed
	}
	return nats.ErrConnectionReconnecting
}

// retry does op until it succeeds, fails for good, or ctx is done.
func (l *Log) retry(ctx context.Context, ref Ref, kind string, op func() error) error {
	var last error
	err := backoff.Retry(func() error {
		last = op()
		var forGood *backoff.PermanentError
		switch {
		case last == nil, errors.As(last, &forGood):
			return last
		case ctx.Err() == nil && (passing(last) || wrongSequence(last) || storeFull(last) || errors.Is(last, errNoMessage)):
			return last
		}
		return backoff.Permanent(last)
	}, backoff.WithContext(newBackOff(), ctx))
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && last != nil {
		err = errors.Join(context.Cause(ctx), last)
	}
	return fmt.Errorf("results: append %s to %s: %w", kind, ref.Key, err)
}

// newBackOff waits 20 ms at first and 2 s at most, give or take half of it, so
// that those who waited for a server do not come back to it all at once. It
// goes on for as long as the context allows.
func newBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

// flights lets each call have one append in flight in this process. Replicated
// streams refuse the second of two that state an expectation about the same
// subject, and progress must not overtake progress.
type flights struct {
	mu sync.Mutex
	m  map[Ref]*flight
}

type flight struct {
	sem   chan struct{}
	users int
}

// acquire waits for ref's turn.
func (f *flights) acquire(ctx context.Context, ref Ref) (release func(), err error) {
	f.mu.Lock()
	fl := f.m[ref]
	if fl == nil {
		fl = &flight{sem: make(chan struct{}, 1)}
		if f.m == nil {
			f.m = map[Ref]*flight{}
		}
		f.m[ref] = fl
	}
	fl.users++
	f.mu.Unlock()

	leave := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if fl.users--; fl.users == 0 {
			delete(f.m, ref)
		}
	}
	select {
	case fl.sem <- struct{}{}:
		return func() { <-fl.sem; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("results: append to %s: %w", ref.Key, context.Cause(ctx))
	}
}
