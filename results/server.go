package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// server reads the stream by requests of its own, because the client library
// has neither the leader's answer for a stream that allows direct gets, nor
// the batched forms of a direct get. Two kinds of read:
//
//   - last and next ask the stream's leader: what it answers is the truth.
//   - batch asks any replica: fast and in bulk, but a replica may lag behind.
//     What it returns is a prefix of the truth, without gaps.
type server struct {
	nc  *nats.Conn
	api string
}

func newServer(js jetstream.JetStream) server {
	api := jetstream.DefaultAPIPrefix
	switch o := js.Options(); {
	case o.Domain != "":
		api = "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		api = o.APIPrefix + "."
	}
	return server{nc: js.Conn(), api: api}
}

// requestTimeout bounds one request to the server. A reconnect takes less.
const requestTimeout = 5 * time.Second

// errNoMessage says that the server has no such message.
var errNoMessage = errors.New("results: no such message")

// Server errors that the client library has no name for.
const (
	wrongSequenceReplicated jetstream.ErrorCode = 10164
	storeFailed             jetstream.ErrorCode = 10077
)

// last reads the last message of a subject from the leader.
func (s server) last(ctx context.Context, subject string) (Entry, error) {
	return s.get(ctx, getRequest{LastFor: subject})
}

// next reads the first message from seq on whose subject matches, from the
// leader.
func (s server) next(ctx context.Context, filter string, seq uint64) (Entry, error) {
	return s.get(ctx, getRequest{Seq: seq, NextFor: filter})
}

// getRequest is what the server's two get APIs take.
type getRequest struct {
	Seq       uint64   `json:"seq,omitempty"`
	LastFor   string   `json:"last_by_subj,omitempty"`
	NextFor   string   `json:"next_by_subj,omitempty"`
	Batch     int      `json:"batch,omitempty"`
	MaxBytes  int      `json:"max_bytes,omitempty"`
	MultiLast []string `json:"multi_last,omitempty"`
}

// getReply is what the leader answers.
type getReply struct {
	Error   *jetstream.APIError `json:"error"`
	Message *struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

func (s server) get(ctx context.Context, r getRequest) (Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	msg, err := s.nc.RequestWithContext(ctx, s.api+"STREAM.MSG.GET."+Stream, mustJSON(r))
	if err != nil {
		return Entry{}, fmt.Errorf("results: read: %w", err)
	}
	var reply getReply
	if err := json.Unmarshal(msg.Data, &reply); err != nil {
		return Entry{}, fmt.Errorf("results: read: %w", err)
	}
	switch {
	case reply.Error != nil && reply.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return Entry{}, errNoMessage
	case reply.Error != nil:
		return Entry{}, fmt.Errorf("results: read: %w", reply.Error)
	case reply.Message == nil:
		return Entry{}, errors.New("results: read: the server's answer holds no message")
	}
	m := reply.Message
	ref, kind, ok := parseSubject(m.Subject)
	if !ok {
		return Entry{}, fmt.Errorf("results: read: unknown subject %q", m.Subject)
	}
	return Entry{Seq: m.Seq, Kind: kind, Time: m.Time, Data: m.Data, ref: ref}, nil
}

// The bounds of one batch; the first to be met ends it.
const (
	batchMessages = 256
	batchBytes    = 4 << 20
)

// page reads the next messages from seq on whose subject matches filter, in
// order. An empty page means that the replica that answered has no more.
func (s server) page(ctx context.Context, filter string, seq uint64) ([]Entry, error) {
	return s.batch(ctx, getRequest{Seq: max(seq, 1), NextFor: filter, Batch: batchMessages, MaxBytes: batchBytes})
}

// lasts reads the last message of every kind of a log, in stream order, as they
// stood at one moment. Three servers that have just made the stream, or lost one
// of them, have nobody for a moment who answers: it asks again for a second.
func (s server) lasts(ctx context.Context, ref Ref) ([]Entry, error) {
	again := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxElapsedTime(time.Second),
	)
	return backoff.RetryWithData(func() ([]Entry, error) {
		entries, err := s.batch(ctx, getRequest{MultiLast: []string{ref.subject("*")}, Batch: 16})
		if err != nil && !errors.Is(err, nats.ErrNoResponders) {
			err = backoff.Permanent(err)
		}
		return entries, err
	}, backoff.WithContext(again, ctx))
}

// none reports whether there is no message on any of the subjects. Of an answer
// with messages only the first comes, and says enough.
func (s server) none(ctx context.Context, subjects ...string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	msg, err := s.nc.RequestWithContext(ctx, s.api+"DIRECT.GET."+Stream, mustJSON(getRequest{MultiLast: subjects, Batch: 1}))
	if err != nil {
		return false, fmt.Errorf("results: read: %w", err)
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
		return false, nil
	case "404":
		return true, nil
	default:
		return false, fmt.Errorf("results: read: server says %s %s", status, msg.Header.Get("Description"))
	}
}

func (s server) batch(ctx context.Context, r getRequest) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	inbox := s.nc.NewInbox()
	// The buffer takes the whole answer. The library's own for a subscription
	// takes half a megabyte.
	msgs := make(chan *nats.Msg, r.Batch+1)
	sub, err := s.nc.ChanSubscribe(inbox, msgs)
	if err != nil {
		return nil, fmt.Errorf("results: read: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	if err := s.nc.PublishRequest(s.api+"DIRECT.GET."+Stream, inbox, mustJSON(r)); err != nil {
		return nil, fmt.Errorf("results: read: %w", err)
	}
	var entries []Entry
	for {
		var msg *nats.Msg
		select {
		case msg = <-msgs:
		case <-ctx.Done():
			return nil, fmt.Errorf("results: read: %w", ctx.Err())
		}
		switch status := msg.Header.Get("Status"); status {
		case "":
			e, err := directEntry(msg)
			if err != nil {
				return nil, err
			}
			entries = append(entries, e)
		case "204", "404": // end of batch, nothing found
			return entries, nil
		case "503":
			return nil, fmt.Errorf("results: read: %w", nats.ErrNoResponders)
		default:
			return nil, fmt.Errorf("results: read: server says %s %s", status, msg.Header.Get("Description"))
		}
	}
}

// directEntry reads the answer to a direct get, whose subject, sequence and
// time are in headers.
func directEntry(msg *nats.Msg) (Entry, error) {
	subject := msg.Header.Get(jetstream.SubjectHeader)
	ref, kind, ok := parseSubject(subject)
	seq, seqErr := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
	at, timeErr := time.Parse(time.RFC3339Nano, msg.Header.Get(jetstream.TimeStampHeaer))
	if err := errors.Join(seqErr, timeErr); err != nil || !ok {
		return Entry{}, fmt.Errorf("results: read: unreadable headers for subject %q: %w", subject, err)
	}
	return Entry{Seq: seq, Kind: kind, Time: at, Data: msg.Data, ref: ref}, nil
}

// wrongSequence reports whether a publish met another expectation than it
// stated: there is a message on the subject already, or one in flight.
func wrongSequence(err error) bool {
	code := codeOf(err)
	return code == jetstream.JSErrCodeStreamWrongLastSequence || code == wrongSequenceReplicated
}

// storeFull reports whether the server could not store a message, which on a
// stream that discards new ones means that it is full.
func storeFull(err error) bool { return codeOf(err) == storeFailed }

// passing reports whether the same request may succeed a little later.
func passing(err error) bool {
	for _, e := range [...]error{
		nats.ErrTimeout, context.DeadlineExceeded, nats.ErrNoResponders, jetstream.ErrNoStreamResponse, nats.ErrDisconnected,
		nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, jetstream.ErrInvalidJSAck,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code >= 500
}

func codeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}
