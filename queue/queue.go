package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// Sentinels.
var (
	// ErrWaiting says that the job is in the queue already.
	ErrWaiting = errors.New("queue: the job is waiting already")
	// ErrFull says that the queue takes no more.
	ErrFull = errors.New("queue: full")
	// ErrDraining is the cause of a handler's cancelled context when the
	// worker has to stop before the handler was done.
	ErrDraining = errors.New("queue: worker is draining")
)

// DefaultClass is the class of a job whose spec names none.
const DefaultClass = "default"

// Queue holds TOOLFLEET_CALLS and TOOLFLEET_READY. It is safe for concurrent use.
type Queue struct {
	js    jetstream.JetStream
	api   string
	opts  Options
	calls jetstream.Stream
	ready jetstream.Stream
}

// Options of [Open].
type Options struct {
	// MaxBytes bounds each stream; 0 means 1 GiB.
	MaxBytes int64
	// Replicas is how many servers keep the streams; 0 means 1.
	Replicas int
	// AckWait is how long a delivery lives without a heartbeat; 0 means 15 s.
	// Heartbeats come three times as often. It must be the same for every
	// process of a fleet.
	AckWait time.Duration
	// Bind takes the streams as they are and needs no permission to make any;
	// those that are not there are an error. The other options but AckWait mean
	// nothing then.
	Bind bool
}

// open creates or checks a stream, or binds to it.
func (o Options) open(ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig) (jetstream.Stream, error) {
	if o.Bind {
		return js.Stream(ctx, config.Name)
	}
	return js.CreateOrUpdateStream(ctx, config)
}

// Open creates or checks the streams, or binds to them.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Queue, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 30
	}
	if o.AckWait == 0 {
		o.AckWait = 15 * time.Second
	}
	o.Replicas = max(o.Replicas, 1)
	q := &Queue{js: js, api: apiPrefix(js), opts: o}
	for _, s := range []struct {
		into   *jetstream.Stream
		config jetstream.StreamConfig
	}{{&q.calls, callsConfig(o)}, {&q.ready, readyConfig(o)}} {
		stream, err := o.open(ctx, js, s.config)
		if err != nil {
			return nil, fmt.Errorf("queue: stream %s: %w", s.config.Name, err)
		}
		*s.into = stream
	}
	return q, nil
}

var classForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// classOf is the class of a job, checked, since it becomes part of a subject.
func classOf(class string) (string, error) {
	if class == "" {
		return DefaultClass, nil
	}
	if !classForm.MatchString(class) {
		return "", fmt.Errorf("queue: %q is not a class: [A-Za-z0-9_-]{1,64}", class)
	}
	return class, nil
}

// place is the subject of a job in READY.
func place(class string, key call.Key) (string, error) {
	class, err := classOf(class)
	if err != nil {
		return "", err
	}
	if _, err := call.ParseKey(string(key)); err != nil {
		return "", fmt.Errorf("queue: %w", err)
	}
	return readyPrefix + class + "." + string(key), nil
}

// Push puts a job into READY. ErrWaiting when it is there already, waiting or
// being worked on.
func (q *Queue) Push(ctx context.Context, job catalog.Job) error {
	if job.Spec == nil {
		return errors.New("queue: push: the job has no spec, so nothing could run it")
	}
	subject, err := place(job.Spec.Class, job.Call.Key())
	if err != nil {
		return err
	}
	data, err := json.Marshal(job)
	if err != nil {
		return fmt.Errorf("queue: push: %w", err)
	}
	if limit := q.js.Conn().MaxPayload(); int64(len(data)) > limit {
		return fmt.Errorf("queue: push: a job of %d bytes is over the server's limit of %d bytes (max_payload)", len(data), limit)
	}
	if _, err := q.js.Publish(ctx, subject, data); err != nil {
		return q.refused(ctx, subject, err)
	}
	return nil
}

// refused finds out why the server did not take a job. It has one code for a
// subject that is taken and for a stream that is full, and the text is not to
// be relied on: so ask whether the job is there. Push is tried again when an
// acknowledgement was lost, and then it is there, too.
func (q *Queue) refused(ctx context.Context, subject string, cause error) error {
	if api, ok := errors.AsType[*jetstream.APIError](cause); !ok || api.ErrorCode != storeFailed {
		return fmt.Errorf("queue: push: %w", cause)
	}
	switch _, err := q.ready.GetLastMsgForSubject(ctx, subject); {
	case err == nil:
		return ErrWaiting
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("%w: %w", ErrFull, cause)
	default:
		return fmt.Errorf("queue: push: %w", errors.Join(cause, err))
	}
}

// storeFailed is the server's code for a message that the store did not take.
const storeFailed jetstream.ErrorCode = 10077

// Has reports whether the job is in READY, waiting or being worked on.
func (q *Queue) Has(ctx context.Context, class string, key call.Key) (bool, error) {
	subject, err := place(class, key)
	if err != nil {
		return false, err
	}
	switch _, err := q.ready.GetLastMsgForSubject(ctx, subject); {
	case err == nil:
		return true, nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	default:
		return false, fmt.Errorf("queue: look for %s: %w", key, err)
	}
}

// Remove takes a job away, wherever it waits. Removing one that is not there
// is no error. A worker that has it in its hands is not told: cancel the call
// in its log for that.
func (q *Queue) Remove(ctx context.Context, class string, key call.Key) error {
	subject, err := place(class, key)
	if err != nil {
		return err
	}
	class, _ = classOf(class)
	waiting := callsPrefix + class + ".*.*.*." + string(key)
	if err = errors.Join(take(ctx, q.ready, subject), take(ctx, q.calls, waiting)); err != nil {
		return fmt.Errorf("queue: remove %s: %w", key, err)
	}
	return nil
}

// take deletes the message of a subject, if there is one.
//
// It does not purge the subject: a purge moves the floor of the consumer's
// deliveries past others that are in flight, the next acknowledgement moves
// its floor in the stream after it, and the server (2.15.3) then forgets the
// messages between. They are delivered to nobody, for ever.
func take(ctx context.Context, stream jetstream.Stream, subject string) error {
	msg, err := stream.GetLastMsgForSubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil
	case err != nil:
		return err
	}
	err = stream.DeleteMsg(ctx, msg.Sequence)
	if notThere(err) {
		return nil // somebody else was first
	}
	return err
}

// notThere reports whether a delete failed because the server refused it, which
// it does when there is no such message.
func notThere(err error) bool {
	_, refused := errors.AsType[*jetstream.APIError](err)
	return refused || errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful)
}

// Depth is how many jobs wait and how many are being worked on.
type Depth struct{ Waiting, InFlight int }

// Depth asks the server.
func (q *Queue) Depth(ctx context.Context, class string) (Depth, error) {
	c, err := q.consumer(ctx, class)
	if err != nil {
		return Depth{}, err
	}
	info := c.CachedInfo()
	return Depth{Waiting: int(info.NumPending), InFlight: info.NumAckPending}, nil
}

// consumer creates or checks the consumer of a class; all its workers share it.
func (q *Queue) consumer(ctx context.Context, class string) (jetstream.Consumer, error) {
	class, err := classOf(class)
	if err != nil {
		return nil, err
	}
	c, err := q.ready.CreateOrUpdateConsumer(ctx, consumerConfig(class, q.opts))
	if err != nil {
		return nil, fmt.Errorf("queue: consumer of class %s: %w", class, err)
	}
	return c, nil
}
