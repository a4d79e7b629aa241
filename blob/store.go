package blob

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
)

// Store is the object store toolfleet_blobs. It is safe for concurrent use.
//
// It keeps the layout of a JetStream object store (chunks under one subject, a
// description of them under another), so that every NATS tool can list and
// read it, but it does the writing and the reading itself. The client
// library's Put replaces what is there, which cuts its readers off; here the
// server takes one description per blob and refuses the second. The library's
// Get waits for a chunk that is missing until its context ends; here each
// chunk is a question with an answer.
type Store struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	api    string // where the server's JetStream API is
}

// Options of [Open].
type Options struct {
	// MaxBytes bounds the store; 0 means 4 GiB.
	MaxBytes int64
	// Replicas is how many servers keep it; 0 means 1.
	Replicas int
	// Bind takes the store as it is and needs no permission to make it; one that
	// is not there is an error. The other options mean nothing then.
	Bind bool
}

// Open creates or checks the store, or binds to it.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Store, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 30
	}
	if !o.Bind {
		if err := create(ctx, js, o); err != nil {
			return nil, fmt.Errorf("blob: store %s: %w", Bucket, err)
		}
	}
	stream, err := js.Stream(ctx, objects)
	if err != nil {
		return nil, fmt.Errorf("blob: store %s: %w", Bucket, err)
	}
	return &Store{js: js, stream: stream, api: apiPrefix(js)}, nil
}

// objects is the stream behind the store.
const objects = "OBJ_" + Bucket

// create creates or checks the store.
func create(ctx context.Context, js jetstream.JetStream, o Options) error {
	_, err := js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket:      Bucket,
		Description: "Toolfleet: long arguments and large parts of results",
		TTL:         MaxAge,
		MaxBytes:    o.MaxBytes,
		Storage:     jetstream.FileStorage,
		Replicas:    max(o.Replicas, 1),
	})
	return err
}

const (
	chunkSize  = 128 << 10
	mimeHeader = "Toolfleet-Mime-Type"
	nameHeader = "Toolfleet-Name"
	// digestType begins a digest in an object store; URL-safe base64 follows.
	digestType = "SHA-256="
)

// name is the object's name in the store.
func (id ID) name() string { return id.Tenant + "/" + string(id.Key) + "/" + strconv.Itoa(id.N) }

// subject is where the blob's description is.
func (id ID) subject() string {
	return "$O." + Bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(id.name()))
}

// chunks is where the bytes are that were put under the given unique id.
func chunks(unique string) string { return "$O." + Bucket + ".C." + unique }

// Stat describes a blob. ErrNotFound when it is not there.
func (s *Store) Stat(ctx context.Context, id ID) (Info, error) {
	obj, err := s.describe(ctx, id)
	if err != nil {
		return Info{}, err
	}
	return infoOf(id, obj)
}

// describe reads a blob's description. Any replica may answer; that there is
// none is believed to the leader alone, since a result that names a blob reaches
// its reader sooner than the blob reaches the last replica.
func (s *Store) describe(ctx context.Context, id ID) (obj jetstream.ObjectInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var data []byte
	msg, err := s.stream.GetLastMsgForSubject(ctx, id.subject())
	switch {
	case err == nil:
		data = msg.Data
	case errors.Is(err, jetstream.ErrMsgNotFound):
		data, err = s.askLeader(ctx, id.subject())
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return obj, err
	case err != nil:
		return obj, fmt.Errorf("blob: get %s: %w", id, err)
	}
	if err := json.Unmarshal(data, &obj); err != nil {
		return obj, fmt.Errorf("blob: get %s: unreadable description: %w", id, err)
	}
	if obj.Deleted {
		return obj, ErrNotFound
	}
	return obj, nil
}

// infoOf translates a description.
func infoOf(id ID, obj jetstream.ObjectInfo) (Info, error) {
	var sum []byte
	var err error
	if len(obj.Digest) > len(digestType) {
		sum, err = base64.URLEncoding.DecodeString(obj.Digest[len(digestType):])
	}
	if err != nil || len(sum) != sha256.Size {
		return Info{}, fmt.Errorf("blob: get %s: unreadable digest %q", id, obj.Digest)
	}
	return Info{
		Size:     int64(obj.Size),
		MimeType: obj.Headers.Get(mimeHeader),
		Name:     obj.Headers.Get(nameHeader),
		Digest:   fmt.Sprintf("sha256:%x", sum),
	}, nil
}

// description is what infoOf and every NATS tool read.
func description(id ID, unique string, info Info) (jetstream.ObjectInfo, error) {
	sum, err := hex.DecodeString(strings.TrimPrefix(info.Digest, "sha256:"))
	if err != nil {
		return jetstream.ObjectInfo{}, fmt.Errorf("blob: digest %q: %w", info.Digest, err)
	}
	headers := nats.Header{mimeHeader: {info.MimeType}}
	if info.Name != "" {
		headers[nameHeader] = []string{info.Name}
	}
	return jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{
			Name:    id.name(),
			Headers: headers,
			Opts:    &jetstream.ObjectMetaOptions{ChunkSize: chunkSize},
		},
		Bucket: Bucket,
		NUID:   unique,
		Size:   uint64(info.Size),
		Chunks: uint32((info.Size + chunkSize - 1) / chunkSize),
		Digest: digestType + base64.URLEncoding.EncodeToString(sum),
	}, nil
}
