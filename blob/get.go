package blob

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"
)

// lagTime is how long a chunk that is not there is asked for again: a replica
// may be a little behind.
const lagTime = time.Second

// Get opens a blob at offset. ErrNotFound when it is not there. The reader
// reads under ctx, each chunk within five seconds, and fails when a chunk is
// missing or, at the end, when the bytes are not those that were put. It holds
// nothing that needs closing; Close is for the callers' convenience.
//
// The store knows no ranges, so what lies before offset is read and dropped.
func (s *Store) Get(ctx context.Context, id ID, offset int64) (Info, io.ReadCloser, error) {
	obj, err := s.describe(ctx, id)
	if err != nil {
		return Info{}, nil, err
	}
	info, err := infoOf(id, obj)
	if err != nil {
		return Info{}, nil, err
	}
	if offset < 0 || offset > info.Size {
		return Info{}, nil, fmt.Errorf("blob: get %s: offset %d is outside of its %d bytes", id, offset, info.Size)
	}
	r := &reader{
		ctx: ctx, stream: s.stream, id: id, subject: chunks(obj.NUID),
		left: info.Size, digest: obj.Digest, hash: sha256.New(),
	}
	if _, err := io.CopyN(io.Discard, r, offset); err != nil {
		return Info{}, nil, err
	}
	return info, r, nil
}

// reader reads one chunk after the other.
type reader struct {
	ctx     context.Context // io.Reader has no context of its own
	stream  jetstream.Stream
	id      ID
	subject string
	// seq is the sequence of the last chunk that was read.
	seq    uint64
	left   int64
	chunk  []byte
	digest string
	hash   hash.Hash
}

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	if len(r.chunk) == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}

// Close implements [io.Closer].
func (r *reader) Close() error { return nil }

// next reads the next chunk. io.EOF when all was read and is what was put.
func (r *reader) next() error {
	if r.left == 0 {
		if got := digestType + base64.URLEncoding.EncodeToString(r.hash.Sum(nil)); got != r.digest {
			return fmt.Errorf("blob: get %s: the bytes are not those that were put", r.id)
		}
		return io.EOF
	}
	var msg *jetstream.RawStreamMsg
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxElapsedTime(lagTime))
	err := backoff.Retry(func() (err error) {
		ctx, cancel := context.WithTimeout(r.ctx, requestTimeout)
		defer cancel()
		msg, err = r.stream.GetMsg(ctx, r.seq+1, jetstream.WithGetMsgSubject(r.subject))
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(b, r.ctx))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("blob: get %s: %d bytes are missing from the store", r.id, r.left)
	case err != nil:
		return fmt.Errorf("blob: get %s: %w", r.id, err)
	case len(msg.Data) == 0 || int64(len(msg.Data)) > r.left:
		return fmt.Errorf("blob: get %s: a chunk of %d bytes where %d are left", r.id, len(msg.Data), r.left)
	}
	r.seq, r.chunk = msg.Sequence, msg.Data
	r.left -= int64(len(msg.Data))
	r.hash.Write(msg.Data)
	return nil
}
