package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// The bounds of a follower's buffer; whichever is met first makes it fall
// behind.
const (
	bufferEntries = 64
	bufferBytes   = 1 << 20
)

// How long a follower that hears nothing waits before it asks the server. With
// the shared follower running that is a safety net; without, it is the only
// source.
const (
	recheckLive = 30 * time.Second
	recheckPoll = 500 * time.Millisecond
)

// Follower yields the entries of one log in order, without gaps or doubles. It
// is for one goroutine; only Stop may be called from another.
//
// It reads from two sources. Live entries come from the shared follower into a
// bounded buffer. Earlier ones, and those that did not fit, are read from the
// stream up to the position from which on the buffer is complete. Entries that
// both bring are dropped by their sequence. The usual follower, which begins
// where its call was admitted a moment ago, finds everything in the shared
// follower's memory and reads nothing.
type Follower struct {
	log *Log
	ref Ref

	// last is the sequence of the last entry that was yielded.
	last uint64
	page []Entry
	// goal is how far the stream must be read before the buffer is complete.
	goal  uint64
	ended bool
	// opened is set once it is known that there is a log.
	opened bool

	wake chan struct{} // written by offer, read by Next

	mu     sync.Mutex
	buffer []Entry
	bytes  int
	behind bool
}

// Follow begins after sequence after (0 is from the beginning). Entries that
// the follower is too slow for are fetched again from the stream, so a slow
// reader costs itself only. Stop must be called.
//
// When Run is not running, or does not follow all kinds, the follower asks the
// server twice a second instead: it still gets everything, only later.
func (l *Log) Follow(ctx context.Context, ref Ref, after uint64) (*Follower, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("results: follow %s: %w", ref.Key, context.Cause(ctx))
	}
	f := &Follower{log: l, ref: ref, last: after, opened: after > 0, wake: make(chan struct{}, 1)}
	// Joined before anything is read, so that nothing falls between.
	if pos, covered := l.fan.join(f); !covered {
		f.goal = max(pos, after+1) // at least one read: it tells what has ended, and what is not there
	}
	return f, nil
}

// Stop ends the follower.
func (f *Follower) Stop() { f.log.fan.leave(f) }

// offer hands over a live entry and never blocks. The caller holds the
// fanout's lock.
func (f *Follower) offer(e Entry) {
	f.mu.Lock()
	switch {
	case f.behind:
	case len(f.buffer) >= bufferEntries || f.bytes+len(e.Data) > bufferBytes && len(f.buffer) > 0:
		f.behind = true
	default:
		f.buffer = append(f.buffer, e)
		f.bytes += len(e.Data)
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take takes the oldest entry out of the buffer; behind is true when there is
// none and some were dropped.
func (f *Follower) take() (e Entry, ok, behind bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.buffer) == 0 {
		f.buffer = nil
		return Entry{}, false, f.behind
	}
	e = f.buffer[0]
	f.buffer[0] = Entry{}
	f.buffer = f.buffer[1:]
	f.bytes -= len(e.Data)
	return e, true, false
}

// Next waits for the next entry. After the result it returns io.EOF. When
// there is no log it returns ErrNotFound.
func (f *Follower) Next(ctx context.Context) (Entry, error) {
	for {
		if f.ended {
			return Entry{}, io.EOF
		}
		e, ok, err := f.next(ctx)
		if err != nil {
			return Entry{}, fmt.Errorf("results: follow %s: %w", f.ref.Key, err)
		}
		if !ok {
			continue
		}
		f.ended = e.Kind == KindResult
		if e.Seq <= f.last {
			continue // seen already, from the other source or before a resume
		}
		f.last = e.Seq
		return e, nil
	}
}

// next takes one entry from wherever the next one is; ok is false when
// something changed and it is worth to look again.
func (f *Follower) next(ctx context.Context) (e Entry, ok bool, err error) {
	if len(f.page) > 0 {
		e, f.page = f.page[0], f.page[1:]
		return e, true, nil
	}
	if f.last < f.goal {
		return Entry{}, false, f.read(ctx)
	}
	e, ok, behind := f.take()
	switch {
	case ok:
		return e, true, nil
	case behind:
		f.goal = f.log.fan.rejoin(f)
		return Entry{}, false, nil
	}
	return Entry{}, false, f.wait(ctx)
}

// wait waits for a live entry, or long enough to doubt that one will come.
func (f *Follower) wait(ctx context.Context) error {
	patience := f.log.poll
	if f.log.followsAll() && f.log.running.Load() > 0 {
		patience = recheckLive
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-f.wake:
	case <-timer.C:
		return f.read(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// read reads the next page from the stream. When the leader says that there
// are no more entries, the goal is reached. A server out of reach is waited
// for.
func (f *Follower) read(ctx context.Context) error {
	op := func() error {
		page, err := f.log.server.read(ctx, f.ref.subject("*"), f.last+1)
		if err != nil {
			if passing(err) && ctx.Err() == nil {
				return err
			}
			return backoff.Permanent(err)
		}
		f.page = page
		return nil
	}
	if err := backoff.Retry(op, backoff.WithContext(newBackOff(), ctx)); err != nil {
		return err
	}
	if len(f.page) > 0 {
		f.opened = true
		return nil
	}
	return f.caughtUp(ctx)
}

// caughtUp is called when the stream has no entry after the last one.
func (f *Follower) caughtUp(ctx context.Context) error {
	if !f.opened {
		return ErrNotFound
	}
	f.goal = 0
	// Somebody who resumes behind the result waits for nothing.
	e, err := f.log.server.last(ctx, f.ref.subject(KindResult))
	switch {
	case err == nil:
		f.ended = f.ended || e.Seq <= f.last
	case !errors.Is(err, errNoMessage) && !passing(err):
		return err
	}
	return nil
}

// read is a page that is known to be complete: an empty one means that the
// leader has no more. A replica that lags gives a page that is too short, or
// none, and the next request goes on where it ended.
func (s server) read(ctx context.Context, filter string, seq uint64) ([]Entry, error) {
	page, err := s.page(ctx, filter, seq)
	if err != nil || len(page) > 0 {
		return page, err
	}
	e, err := s.next(ctx, filter, max(seq, 1))
	switch {
	case errors.Is(err, errNoMessage):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []Entry{e}, nil
}
