package blob

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
)

const (
	// requestTimeout bounds one question to the store.
	requestTimeout = 5 * time.Second
	// purgeTimeout bounds the clean-up after a put that lost.
	purgeTimeout = time.Second
	// putTimeout bounds a Put, whatever the caller's context allows.
	putTimeout = 2 * time.Minute
	// wrongSequenceReplicated is what a replicated stream answers in place of
	// [jetstream.JSErrCodeStreamWrongLastSequence].
	wrongSequenceReplicated jetstream.ErrorCode = 10164
)

// Put writes a blob once. A second put of the same id with the same bytes
// succeeds; with others it fails with ErrOther, also when two put at once: the
// server takes the description of one. A server that is away is waited for, two
// minutes at most; then the error is [context.DeadlineExceeded].
func (s *Store) Put(ctx context.Context, id ID, mimeType string, data []byte) (Info, error) {
	if len(data) > MaxSize {
		return Info{}, fmt.Errorf("blob: put %s: %d bytes are over the limit of %d bytes", id, len(data), MaxSize)
	}
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	want := Info{Size: int64(len(data)), MimeType: mimeType, Digest: call.Digest(string(data))}
	// A try that was cut short is begun anew, under another unique id.
	info, err := backoff.RetryWithData(func() (Info, error) {
		switch info, err := s.Stat(ctx, id); {
		case err == nil:
			return info, nil
		case !errors.Is(err, ErrNotFound):
			return Info{}, forGood(err)
		}
		obj, err := description(id, rand.Text(), want)
		if err != nil {
			return Info{}, backoff.Permanent(err)
		}
		return s.put(ctx, id, obj, data)
	}, backoff.WithContext(newBackOff(), ctx))
	if err != nil {
		return Info{}, fmt.Errorf("blob: put %s: %w", id, err)
	}
	return same(id, info, want)
}

// newBackOff waits 20 ms at first, for as long as the context allows.
func newBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

// forGood marks an error that trying again would not mend: the server has
// refused, or the connection is closed.
func forGood(err error) error {
	if _, refused := errors.AsType[*jetstream.APIError](err); refused || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrMaxPayload) {
		return backoff.Permanent(err)
	}
	return err
}

// put writes the chunks, then the description. It returns the blob that is
// there in the end, which may be another's.
func (s *Store) put(ctx context.Context, id ID, obj jetstream.ObjectInfo, data []byte) (Info, error) {
	won, winner, err := false, jetstream.ObjectInfo{}, s.putChunks(ctx, chunks(obj.NUID), data)
	if err == nil {
		won, winner, err = s.putDescription(ctx, id, obj)
	}
	if !won {
		s.discard(ctx, obj.NUID)
	}
	if err != nil {
		return Info{}, err
	}
	info, err := infoOf(id, winner)
	if err != nil {
		return Info{}, backoff.Permanent(err)
	}
	return info, nil
}

func (s *Store) putChunks(ctx context.Context, subject string, data []byte) error {
	for len(data) > 0 {
		n := min(len(data), chunkSize)
		// A chunk whose acknowledgement is lost is not written again, since it
		// might be there twice then: the whole try is begun anew.
		if err := s.putChunk(ctx, subject, data[:n]); err != nil {
			return forGood(err)
		}
		data = data[n:]
	}
	return nil
}

func (s *Store) putChunk(ctx context.Context, subject string, chunk []byte, opts ...jetstream.PublishOpt) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.js.Publish(ctx, subject, chunk, opts...)
	return err
}

// putDescription makes the blob appear, once. A lost acknowledgement makes
// one's own description look like another's; the unique id tells them apart.
func (s *Store) putDescription(ctx context.Context, id ID, obj jetstream.ObjectInfo) (won bool, winner jetstream.ObjectInfo, err error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return false, winner, err
	}
	try := func() error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		_, err := s.js.Publish(ctx, id.subject(), raw, jetstream.WithExpectLastSequencePerSubject(0))
		if err == nil {
			winner = obj
			return nil
		}
		if taken(err) {
			winner, err = s.describe(ctx, id) // not found: not here yet, ask again
			return err
		}
		return forGood(err)
	}
	err = backoff.Retry(try, backoff.WithContext(newBackOff(), ctx))
	return err == nil && winner.NUID == obj.NUID, winner, err
}

// taken reports whether the server has a description already.
func taken(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == wrongSequenceReplicated)
}

// same accepts the bytes that are wanted, and no others.
func same(id ID, info, want Info) (Info, error) {
	if info.Size != want.Size || info.Digest != want.Digest {
		return Info{}, fmt.Errorf("%w: put %s", ErrOther, id)
	}
	return info, nil
}
