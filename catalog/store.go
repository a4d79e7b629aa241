package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// Bucket is the name of the bucket of tools that a whole fleet shares.
	Bucket = "toolfleet_catalog"
	// MaxTools is how many tools the bucket holds.
	MaxTools = 2048

	// stream is the bucket as the server knows it.
	stream = "KV_" + Bucket
	// setSubject is where the set is, and specPrefix begins where the
	// declarations are; the hex of a digest follows.
	setSubject = "$KV." + Bucket + ".set"
	specPrefix = "$KV." + Bucket + ".spec."
	digestType = "sha256:"

	// setVersion is the version of the set that this code writes, and the newest
	// that it reads.
	setVersion = 1
	// maxEntry is the longest entry: a set of MaxTools with names of 64 bytes.
	maxEntry = 512 << 10
	// requestTimeout is the timeout of a Store.
	requestTimeout = 5 * time.Second
)

// Store is the bucket toolfleet_catalog: tools that every dispatcher and worker
// of a fleet serves. It is safe for concurrent use.
//
// Declarations are written once, each under the digest of its own text, and one
// entry, the set, says which of them the fleet serves by which name. So a change
// of any number of tools is one write that states what it expects: whoever reads
// sees all of it or nothing, and of two people who change the catalogue at the
// same time neither undoes the other. One entry for each tool would need neither
// digests nor a set, and would show a change of ten tools in ten steps.
//
// Reads are answered by the bucket's leader alone: a replica that lags might
// know the set and not yet the declarations.
type Store struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	// keepUnused is how long a declaration stays that no set names.
	keepUnused time.Duration
	// timeout bounds one question to the server.
	timeout time.Duration
}

// StoreOptions of [OpenStore].
type StoreOptions struct {
	// Replicas is how many servers keep the bucket; 0 means 1.
	Replicas int
	// Bind takes the bucket as it is and needs no permission to make it; one that
	// is not there is an error.
	Bind bool
}

// OpenStore creates or checks the bucket, or binds to it.
func OpenStore(ctx context.Context, js jetstream.JetStream, o StoreOptions) (*Store, error) {
	open := func() (jetstream.Stream, error) { return js.CreateOrUpdateStream(ctx, storeConfig(o)) }
	if o.Bind {
		open = func() (jetstream.Stream, error) { return js.Stream(ctx, stream) }
	}
	s, err := open()
	if err != nil {
		return nil, fmt.Errorf("catalog: bucket %s: %w", Bucket, err)
	}
	return &Store{js: js, stream: s, keepUnused: keepUnused, timeout: requestTimeout}, nil
}

// storeConfig is what the client library makes of a bucket, but for two things:
// only the leader answers, and an entry may be deleted by its number, which
// leaves no marker behind and cannot meet a later entry of the same name.
func storeConfig(o StoreOptions) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              stream,
		Description:       "Toolfleet: the tools of the fleet",
		Subjects:          []string{"$KV." + Bucket + ".>"},
		MaxMsgsPerSubject: 1,
		MaxBytes:          64 << 20,
		MaxMsgSize:        maxEntry,
		MaxMsgs:           -1,
		MaxConsumers:      -1,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardNew,
		Duplicates:        time.Second, // the server insists on a window; no entry has an id
		AllowRollup:       true,
		Replicas:          max(o.Replicas, 1),
	}
}

// Set is what the bucket says at one revision.
type Set struct {
	// Revision grows with every change; 0 means that there never was one.
	Revision uint64
	// Changed is when the server took the last change.
	Changed time.Time
	// Tools are the digests of the declarations, by the names of their tools.
	Tools map[string]string
}

// writtenSet is a Set as it is written.
type writtenSet struct {
	Version int               `json:"version"`
	Tools   map[string]string `json:"tools"`
}

// Set reads which tools the bucket has.
func (s *Store) Set(ctx context.Context) (Set, error) {
	msg, err := s.get(ctx, setSubject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return Set{}, nil
	case err != nil:
		return Set{}, err
	}
	var w writtenSet
	switch err := json.Unmarshal(msg.Data, &w); {
	case err != nil:
		return Set{}, fmt.Errorf("catalog: the set in the bucket %s cannot be read: %w", Bucket, err)
	case w.Version > setVersion:
		return Set{}, fmt.Errorf("catalog: the set in the bucket %s was written by a newer version of Toolfleet (form %d; this one knows %d): upgrade this process", Bucket, w.Version, setVersion)
	case w.Version < 1 || len(w.Tools) > MaxTools:
		return Set{}, fmt.Errorf("catalog: the set in the bucket %s is none (form %d, %d tools)", Bucket, w.Version, len(w.Tools))
	}
	return Set{Revision: msg.Sequence, Changed: msg.Time, Tools: w.Tools}, nil
}

// Why a declaration that the set names cannot be had. Any other error means that
// the server did not answer.
var (
	errMissing    = errors.New("its declaration is not in the bucket")
	errUnreadable = errors.New("its declaration cannot be served")
)

// spec reads a declaration and believes nothing of it: it has to be the text
// that the digest names, and a tool that this process would load from a file.
func (s *Store) spec(ctx context.Context, name, digest string) (Spec, error) {
	hex, ok := strings.CutPrefix(digest, digestType)
	if !ok || !plainHex(hex) {
		return Spec{}, fmt.Errorf("%w: %q is no digest", errUnreadable, cut(digest))
	}
	msg, err := s.get(ctx, specPrefix+hex)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return Spec{}, errMissing
	case err != nil:
		return Spec{}, err
	}
	if got, err := digestOf(msg.Data); err != nil || got != digest {
		return Spec{}, fmt.Errorf("%w: it is not the text that %s names", errUnreadable, digest)
	}
	spec, err := ParseJSON(msg.Data)
	if err == nil && spec.Name != name {
		err = fmt.Errorf("it declares %q", spec.Name)
	}
	if err != nil {
		return Spec{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return spec, nil
}

// get asks the leader for the entry of a subject. The error is ErrMsgNotFound of
// the client library or ErrUnavailable.
func (s *Store) get(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	msg, err := s.stream.GetLastMsgForSubject(ctx, subject)
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return msg, err
}

func plainHex(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// watch calls nudge whenever the set was written, until ctx is done or the
// consumer ends, and once at its beginning when there is a set. It says that
// there is something to read and not what: a consumer that lost a message, or
// its server, then costs time and never a wrong set.
func (s *Store) watch(ctx context.Context, nudge func()) error {
	c, err := s.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{setSubject}, DeliverPolicy: jetstream.DeliverLastPolicy, HeadersOnly: true, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return fmt.Errorf("catalog: watch: %w", err)
	}
	cc, err := c.Consume(func(jetstream.Msg) { nudge() }, jetstream.PullHeartbeat(2*time.Second), jetstream.PullExpiry(30*time.Second))
	if err != nil {
		return fmt.Errorf("catalog: watch: %w", err)
	}
	select {
	case <-ctx.Done():
		cc.Stop()
		<-cc.Closed()
		return nil
	case <-cc.Closed():
		return errors.New("catalog: watch: the consumer ended")
	}
}
