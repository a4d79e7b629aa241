package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
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

// Queue holds TOOLFLEET_CALLS, TOOLFLEET_READY and TOOLFLEET_DEAD. It is safe for concurrent use.
type Queue struct {
	js    jetstream.JetStream
	api   string
	opts  Options
	calls jetstream.Stream
	ready jetstream.Stream
	dead  DeadLetters
	room  room
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
	stream, err := js.CreateOrUpdateStream(ctx, config)
	if err == nil || config.Name != CallsStream {
		return stream, err
	}
	// Before there was a scheduler, CALLS was an empty work queue, and a server
	// does not turn one into anything else.
	old, oldErr := js.Stream(ctx, config.Name)
	if oldErr != nil || old.CachedInfo().Config.Retention != jetstream.WorkQueuePolicy || old.CachedInfo().State.Msgs > 0 {
		return nil, err
	}
	if err := js.DeleteStream(ctx, config.Name); err != nil {
		return nil, err
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
	q := &Queue{js: js, api: apiPrefix(js), opts: o, dead: DeadLetters{js: js}}
	for _, s := range []struct {
		into   *jetstream.Stream
		config jetstream.StreamConfig
	}{{&q.calls, callsConfig(o)}, {&q.ready, readyConfig(o)}, {&q.dead.stream, deadConfig(o)}} {
		stream, err := o.open(ctx, js, s.config)
		if err != nil {
			return nil, fmt.Errorf("queue: stream %s: %w", s.config.Name, err)
		}
		*s.into = stream
	}
	return q, nil
}

// Dead returns the dead letters of the queue's fleet.
func (q *Queue) Dead() *DeadLetters { return &q.dead }

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

// Address is where a job is: what its subjects are made of.
type Address struct {
	// Class is the class of the job's spec; empty means "default".
	Class string
	// Priority is the call's. Empty means that it is not known: then both are
	// looked at.
	Priority     string
	Tenant, Tool string
	Key          call.Key
}

// AddressOf is where a job is.
func AddressOf(job catalog.Job) Address {
	a := Address{Priority: job.Call.Priority, Tenant: job.Call.Tenant, Tool: job.Call.Tool, Key: job.Call.Key()}
	if job.Spec != nil {
		a.Class = job.Spec.Class
	}
	return a
}

// ready is the subject in READY.
func (a Address) ready() (string, error) {
	class, err := classOf(a.Class)
	if err != nil {
		return "", err
	}
	if _, err := call.ParseKey(string(a.Key)); err != nil {
		return "", fmt.Errorf("queue: %w", err)
	}
	return readyPrefix + class + "." + string(a.Key), nil
}

// waiting are the subjects in CALLS: one, or one a priority when that is not
// known. They are whole subjects, since a server finds a wildcard by walking
// over everything that waits.
func (a Address) waiting() ([]string, error) {
	if _, err := a.ready(); err != nil {
		return nil, err
	}
	if !call.ValidTenant(a.Tenant) || !call.ValidToolName(a.Tool) {
		return nil, fmt.Errorf("queue: %q and %q are no tenant and tool", a.Tenant, a.Tool)
	}
	class, _ := classOf(a.Class) // as above
	priorities := []string{a.Priority}
	if a.Priority == "" {
		priorities = []string{call.PriorityInteractive, call.PriorityBatch}
	}
	subjects := make([]string, len(priorities))
	for i, p := range priorities {
		subjects[i] = callsPrefix + class + "." + p + "." + a.Tenant + "." + a.Tool + "." + string(a.Key)
	}
	return subjects, nil
}

// Enqueue puts a job into CALLS, where it waits for the scheduler to move it
// (see [Queue.Promote]). ErrWaiting when it waits there already, ErrFull when
// nothing more may wait.
func (q *Queue) Enqueue(ctx context.Context, job catalog.Job) error {
	a := AddressOf(job)
	a.Priority = cmp.Or(a.Priority, call.PriorityInteractive)
	subjects, err := a.waiting()
	if err != nil {
		return err
	}
	var header nats.Header
	if job.Spec != nil && job.Spec.MaxInFlight > 0 {
		header = nats.Header{headerMaxInFlight: {strconv.Itoa(job.Spec.MaxInFlight)}}
	}
	return q.put(ctx, q.calls, subjects[0], header, job)
}

// Push puts a job into READY: a worker takes it next. It is for whoever decides
// that the job may run now, which is the scheduler; everybody else uses
// Enqueue. ErrWaiting when it is there already, waiting or being worked on.
func (q *Queue) Push(ctx context.Context, job catalog.Job) error {
	subject, err := AddressOf(job).ready()
	if err != nil {
		return err
	}
	return q.put(ctx, q.ready, subject, nil, job)
}

// put publishes a job to a subject of a stream.
func (q *Queue) put(ctx context.Context, stream jetstream.Stream, subject string, header nats.Header, job catalog.Job) error {
	if job.Spec == nil {
		return errors.New("queue: push: the job has no spec, so nothing could run it")
	}
	data, err := json.Marshal(job)
	if err != nil {
		return fmt.Errorf("queue: push: %w", err)
	}
	if limit := q.js.Conn().MaxPayload(); int64(len(data)) > limit {
		return fmt.Errorf("queue: push: a job of %d bytes is over the server's limit of %d bytes (max_payload)", len(data), limit)
	}
	if _, err := q.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: header, Data: data}); err != nil {
		return refused(ctx, stream, subject, err)
	}
	return nil
}

// refused finds out why the server did not take a job. It has one code for a
// subject that is taken and for a stream that is full, and the text is not to
// be relied on: so ask whether the job is there. A publish is tried again when
// an acknowledgement was lost, and then it is there, too.
func refused(ctx context.Context, stream jetstream.Stream, subject string, cause error) error {
	if api, ok := errors.AsType[*jetstream.APIError](cause); !ok || api.ErrorCode != storeFailed {
		return fmt.Errorf("queue: push: %w", cause)
	}
	switch there, err := isIn(ctx, stream, subject); {
	case err != nil:
		return fmt.Errorf("queue: push: %w", errors.Join(cause, err))
	case there:
		return ErrWaiting
	}
	return fmt.Errorf("%w: %w", ErrFull, cause)
}

// storeFailed is the server's code for a message that the store did not take.
const storeFailed jetstream.ErrorCode = 10077

// isIn reports whether a stream has a message of that subject.
func isIn(ctx context.Context, stream jetstream.Stream, subject string) (bool, error) {
	_, err := stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Has reports whether the job is anywhere: ready, being worked on, or waiting
// for its turn.
func (q *Queue) Has(ctx context.Context, a Address) (bool, error) {
	ready, err := a.ready()
	if err != nil {
		return false, err
	}
	waiting, err := a.waiting()
	if err != nil {
		return false, err
	}
	// CALLS first: a job that is moved meanwhile is in READY before it leaves.
	for _, subject := range waiting {
		if there, err := isIn(ctx, q.calls, subject); there || err != nil {
			return there, wrapLook(a.Key, err)
		}
	}
	there, err := isIn(ctx, q.ready, ready)
	return there, wrapLook(a.Key, err)
}

func wrapLook(key call.Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("queue: look for %s: %w", key, err)
}

// Remove takes a job away, wherever it waits. Removing one that is not there
// is no error. A worker that has it in its hands is not told: cancel the call
// in its log for that.
func (q *Queue) Remove(ctx context.Context, a Address) error {
	ready, err := a.ready()
	if err != nil {
		return err
	}
	waiting, err := a.waiting()
	if err != nil {
		return err
	}
	for _, subject := range waiting { // first, for the same reason
		err = errors.Join(err, take(ctx, q.calls, subject))
	}
	if err = errors.Join(err, take(ctx, q.ready, ready)); err != nil {
		return fmt.Errorf("queue: remove %s: %w", a.Key, err)
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
	err = drop(ctx, stream, msg.Sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // somebody else was first
	}
	return err
}

// drop deletes a message; jetstream.ErrMsgNotFound when it is not there. The
// client library does not tell why a server refused a delete, which may be for
// a write that failed: so ask whether the message is there.
func drop(ctx context.Context, stream jetstream.Stream, seq uint64) error {
	err := stream.DeleteMsg(ctx, seq)
	if err == nil {
		return nil
	}
	if _, getErr := stream.GetMsg(ctx, seq); errors.Is(getErr, jetstream.ErrMsgNotFound) {
		return getErr
	}
	return err
}

// Depth is how many jobs of a class are ready and wait for a slot, how many
// are in a slot's hands (or were given back, to be delivered again after a
// pause), and how many slots wait for a job. Limit is how many may be in flight.
type Depth struct{ Waiting, InFlight, Free, Limit int }

// Depth asks the server.
func (q *Queue) Depth(ctx context.Context, class string) (Depth, error) {
	class, err := classOf(class)
	if err != nil {
		return Depth{}, err
	}
	c, err := q.ready.Consumer(ctx, consumerName(class))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		c, err = q.consumer(ctx, class)
	}
	if err != nil {
		return Depth{}, fmt.Errorf("queue: depth of class %s: %w", class, err)
	}
	info := c.CachedInfo()
	return Depth{Waiting: int(info.NumPending), InFlight: info.NumAckPending, Free: info.NumWaiting, Limit: info.Config.MaxAckPending}, nil
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
