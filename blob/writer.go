package blob

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"strconv"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"
)

// Writer writes one blob while its bytes come, and holds one chunk of them.
// Make it with [Store.Create], and end it with [Writer.Commit] or
// [Writer.Abort]. It is for one goroutine.
type Writer struct {
	ctx    context.Context // io.Writer has no context of its own
	store  *Store
	id     ID
	unique string
	chunk  []byte
	size   int64
	sum    hash.Hash
	sent   bool  // a chunk may be in the store
	err    error // the first, and the answer to all that follows
}

// Create begins to write the blob id. ctx bounds all of it. Nobody sees the blob
// before its Commit.
func (s *Store) Create(ctx context.Context, id ID) *Writer {
	return &Writer{ctx: ctx, store: s, id: id, unique: rand.Text(), sum: sha256.New()}
}

// Write implements [io.Writer]. A server that is away is waited for as long as
// the context allows.
func (w *Writer) Write(p []byte) (int, error) {
	n := 0
	if w.err == nil && w.size+int64(len(p)) > MaxSize {
		w.err = fmt.Errorf("blob: put %s: more than the limit of %d bytes", w.id, MaxSize)
	}
	for n < len(p) && w.err == nil {
		if w.chunk == nil {
			w.chunk = make([]byte, 0, chunkSize)
		}
		part := p[n:min(len(p), n+chunkSize-len(w.chunk))]
		w.chunk = append(w.chunk, part...)
		n += len(part)
		w.size += int64(len(part))
		if len(w.chunk) == chunkSize {
			w.flush()
		}
	}
	return n, w.err
}

// flush writes the chunk. The bytes are gone when it returns, so the whole
// cannot be begun anew as Put does it; a chunk whose acknowledgement is lost is
// sent again under the message id that it had, and the server, which knows ids for
// two minutes when it is told nothing else, keeps one.
func (w *Writer) flush() {
	if len(w.chunk) == 0 || w.err != nil {
		return
	}
	if err := w.ctx.Err(); err != nil {
		w.err = fmt.Errorf("blob: put %s: %w", w.id, err)
		return
	}
	w.sent = true
	w.sum.Write(w.chunk)
	msgID := w.unique + "-" + strconv.FormatInt(w.size, 10)
	err := backoff.Retry(func() error {
		return forGood(w.store.putChunk(w.ctx, chunks(w.unique), w.chunk, jetstream.WithMsgID(msgID)))
	}, backoff.WithContext(newBackOff(), w.ctx))
	if err != nil {
		w.err = fmt.Errorf("blob: put %s: %w", w.id, err)
	}
	w.chunk = w.chunk[:0]
}

// Commit makes the blob appear, with a MIME type and the name of a file, or none.
// Like a Put it succeeds when the same bytes are there already, and fails with
// ErrOther when others are. After an error there is nothing to abort.
func (w *Writer) Commit(mimeType, name string) (Info, error) {
	w.flush()
	if w.err != nil {
		w.Abort()
		return Info{}, w.err
	}
	info := Info{Size: w.size, MimeType: mimeType, Name: name, Digest: fmt.Sprintf("sha256:%x", w.sum.Sum(nil))}
	obj, err := description(w.id, w.unique, info)
	if err != nil {
		return Info{}, err
	}
	won, winner, err := w.store.putDescription(w.ctx, w.id, obj)
	if !won {
		w.Abort()
	}
	if err != nil {
		return Info{}, fmt.Errorf("blob: put %s: %w", w.id, err)
	}
	there, err := infoOf(w.id, winner)
	if err != nil {
		return Info{}, err
	}
	return same(w.id, there, info)
}

// Abort drops what was written. Where nothing was, the store is not asked: it may
// be away, and whoever gives up many blobs would wait for each.
func (w *Writer) Abort() {
	if w.err == nil {
		w.err = errors.New("blob: the writer was ended")
	}
	if w.sent {
		w.store.discard(w.ctx, w.unique)
	}
}

// discard removes chunks that nobody will ever read. When it fails, as it does
// for who has no permission to purge, they go by age.
func (s *Store) discard(ctx context.Context, unique string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), purgeTimeout)
	defer cancel()
	_ = s.stream.Purge(ctx, jetstream.WithPurgeSubject(chunks(unique)))
}
