package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// Bucket is the name of the object store.
	Bucket = "toolfleet_blobs"
	// MaxAge is how long a blob is kept: a day longer than the log that
	// refers to it.
	MaxAge = 8 * 24 * time.Hour
	// MaxSize is the largest blob, in bytes.
	MaxSize = 64 << 20
	// opTimeout bounds one Put, and one Get until it is closed. A store that
	// does not answer is an error, never a hang.
	opTimeout = 60 * time.Second

	mimeHeader = "Toolfleet-Mime-Type"
)

// Store is the object store toolfleet_blobs. It is safe for concurrent use.
type Store struct {
	obs     jetstream.ObjectStore
	timeout time.Duration
}

// Options of [Open].
type Options struct {
	// MaxBytes bounds the store; 0 means 4 GiB.
	MaxBytes int64
	// Replicas is how many servers keep it; 0 means 1.
	Replicas int
}

// Open creates or checks the store.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Store, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 30
	}
	obs, err := js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket:      Bucket,
		Description: "Toolfleet: long arguments and large parts of results",
		TTL:         MaxAge,
		MaxBytes:    o.MaxBytes,
		Storage:     jetstream.FileStorage,
		Replicas:    max(o.Replicas, 1),
	})
	if err != nil {
		return nil, fmt.Errorf("blob: store %s: %w", Bucket, err)
	}
	return &Store{obs: obs, timeout: opTimeout}, nil
}

// name is the object's name in the store.
func (id ID) name() string { return id.Tenant + "/" + string(id.Key) + "/" + strconv.Itoa(id.N) }

// Put writes a blob once. A second put of the same id with the same bytes
// succeeds; with others it fails.
func (s *Store) Put(ctx context.Context, id ID, mimeType string, data []byte) (Info, error) {
	if len(data) > MaxSize {
		return Info{}, fmt.Errorf("blob: %d bytes are over the limit of %d bytes", len(data), MaxSize)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	switch info, err := s.stat(ctx, id); {
	case err == nil:
		return same(id, info, data)
	case !errors.Is(err, ErrNotFound):
		return Info{}, err
	}
	obj, err := s.obs.Put(ctx, jetstream.ObjectMeta{
		Name:    id.name(),
		Headers: nats.Header{mimeHeader: {mimeType}},
	}, bytes.NewReader(data))
	if err != nil {
		return Info{}, fmt.Errorf("blob: put %s: %w", id, err)
	}
	return infoOf(id, obj)
}

// same accepts the bytes that are there already, and no others.
func same(id ID, info Info, data []byte) (Info, error) {
	if info.Size != int64(len(data)) || info.Digest != digest(data) {
		return Info{}, fmt.Errorf("blob: put %s: it is there already with other bytes", id)
	}
	return info, nil
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func (s *Store) stat(ctx context.Context, id ID) (Info, error) {
	obj, err := s.obs.GetInfo(ctx, id.name())
	if err != nil {
		return Info{}, notFound(id, err)
	}
	return infoOf(id, obj)
}

func notFound(id ID, err error) error {
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return ErrNotFound
	}
	return fmt.Errorf("blob: get %s: %w", id, err)
}

// infoOf translates the store's digest, "SHA-256=" and URL-safe base64, into
// ours.
func infoOf(id ID, obj *jetstream.ObjectInfo) (Info, error) {
	sum, err := base64.URLEncoding.DecodeString(trimDigest(obj.Digest))
	if err != nil || len(sum) != sha256.Size {
		return Info{}, fmt.Errorf("blob: get %s: unreadable digest %q", id, obj.Digest)
	}
	return Info{Size: int64(obj.Size), MimeType: obj.Headers.Get(mimeHeader), Digest: fmt.Sprintf("sha256:%x", sum)}, nil
}

func trimDigest(d string) string {
	const prefix = "SHA-256="
	if len(d) < len(prefix) {
		return ""
	}
	return d[len(prefix):]
}

// Get opens a blob at offset. ErrNotFound when it is not there. The reader
// must be closed; it fails when the store stops answering, and at its end when
// the bytes are not those that were put. The store knows no ranges, so what
// lies before offset is read and dropped.
func (s *Store) Get(ctx context.Context, id ID, offset int64) (Info, io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	obj, err := s.obs.Get(ctx, id.name())
	if err != nil {
		cancel()
		return Info{}, nil, notFound(id, err)
	}
	r := &reader{obj: obj, cancel: cancel}
	info, err := r.open(id, offset)
	if err != nil {
		_ = r.Close() // the first error is the one to tell
		return Info{}, nil, err
	}
	return info, r, nil
}

// reader is an open blob; closing it ends the deadline, too.
type reader struct {
	obj    jetstream.ObjectResult
	cancel context.CancelFunc
}

func (r *reader) open(id ID, offset int64) (Info, error) {
	obj, err := r.obj.Info()
	if err != nil {
		return Info{}, notFound(id, err)
	}
	info, err := infoOf(id, obj)
	if err != nil {
		return Info{}, err
	}
	if offset < 0 || offset > info.Size {
		return Info{}, fmt.Errorf("blob: get %s: offset %d is outside of its %d bytes", id, offset, info.Size)
	}
	if _, err := io.CopyN(io.Discard, r.obj, offset); err != nil {
		return Info{}, fmt.Errorf("blob: get %s: %w", id, err)
	}
	return info, nil
}

// Read reads on.
func (r *reader) Read(p []byte) (int, error) { return r.obj.Read(p) }

// Close ends the reader.
func (r *reader) Close() error {
	defer r.cancel()
	return r.obj.Close()
}
