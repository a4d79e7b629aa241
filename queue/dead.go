package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// DeadStream holds the dead letters.
const DeadStream = "TOOLFLEET_DEAD"

const (
	// toolfleet.dead.<class>.<tenant>.<tool>.<key>
	deadPrefix = "toolfleet.dead."
	// deadAge is how long a letter is kept: as long as the log remembers the
	// call that it is about. Behind that the argument text, where it travelled
	// as a blob, is about to go as well, and nothing could be made of a letter.
	deadAge = 7 * 24 * time.Hour
	// deadBytes bounds the stream: 80,000 letters of the usual 3 KiB.
	deadBytes = 256 << 20
)

// deadConfig is a stream that is never full: the oldest letters make room. A
// result waits for its letter (see [DeadLetters.File]), and must not wait for
// somebody to tidy up.
func deadConfig(o Options) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              DeadStream,
		Description:       "Toolfleet: calls that ended by a fault of the fleet's own",
		Subjects:          []string{deadPrefix + "*.*.*.*"},
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Discard:           jetstream.DiscardOld,
		MaxMsgsPerSubject: 1,
		MaxBytes:          deadBytes,
		MaxAge:            deadAge,
		MaxMsgs:           -1,
		// Reads go to the leader: what is there decides whether a call is made
		// again.
		AllowDirect: false,
		// As in the work queues, the subject is what keeps doubles out.
		Duplicates: time.Second,
		Replicas:   o.Replicas,
	}
}

// ErrNoLetter says that there is no such dead letter.
var ErrNoLetter = errors.New("queue: no such dead letter")

// Letter is a dead letter: a call that was answered with an error because of a
// fault of the fleet's own, with all that it takes to make it again. It says
// everything by itself, for it may be read when the call's log has gone.
type Letter struct {
	// Job is what was to run: the call, and the spec as it was resolved then.
	Job catalog.Job `json:"job"`
	// Kind and Message are those of the call's error result.
	Kind    call.Kind `json:"kind"`
	Message string    `json:"message"`
	// Attempts says which workers took the call, in the order in which they did.
	Attempts []call.Attempt `json:"attempts"`
	// Filed is when the letter was written: just before the result.
	Filed time.Time `json:"filed"`
	// Cursor continues a list after this letter.
	Cursor uint64 `json:"-"`
}

// Started reports whether the tool may have run.
func (l Letter) Started() bool {
	for _, a := range l.Attempts {
		if a.Started {
			return true
		}
	}
	return false
}

// maxMessage bounds the message of a letter, in bytes.
const maxMessage = 4 << 10

// NewLetter writes down a call that is about to be answered with result r.
func NewLetter(job catalog.Job, r call.Result, attempts []call.Attempt, now time.Time) Letter {
	l := Letter{Job: job, Kind: r.Kind(), Attempts: attempts, Filed: now.UTC()}
	if r.Error != nil {
		l.Message = r.Error.Message[:min(len(r.Error.Message), maxMessage)]
	}
	return l
}

// DeadLetters is the stream TOOLFLEET_DEAD. It is safe for concurrent use.
type DeadLetters struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

// fileTry bounds one try to file.
const fileTry = 2 * time.Second

// File files a letter, unless there is one about the call: then filed is false
// and that one stays. It tries again until ctx is done when the server cannot
// be reached.
//
// A letter is filed before the result of its call is published. A process that
// dies between the two leaves a call without a result, which the keeper or the
// next worker ends; it files the letter again, which changes nothing, and then
// answers. The other way round the call would look finished and nobody would
// come back to it. When that other one ends the call in another way, it takes
// the letter back with Drop.
func (d *DeadLetters) File(ctx context.Context, l Letter) (filed bool, err error) {
	subject, err := l.subject()
	if err != nil {
		return false, err
	}
	data, err := l.encode(d.js.Conn().MaxPayload())
	if err != nil {
		return false, fmt.Errorf("queue: dead letter: %w", err)
	}
	try := func() error {
		ctx, cancel := context.WithTimeout(ctx, fileTry)
		defer cancel()
		_, err := d.js.Publish(ctx, subject, data, jetstream.WithExpectLastSequencePerSubject(0))
		switch {
		case err == nil:
			filed = true
			return nil
		case errors.Is(err, nats.ErrConnectionClosed):
			return backoff.Permanent(err)
		}
		// There may be a letter, of another's or our own whose acknowledgement
		// was lost. Only the stream knows.
		if _, getErr := d.stream.GetLastMsgForSubject(ctx, subject); getErr == nil {
			return nil
		}
		return err
	}
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
	if err := backoff.Retry(try, backoff.WithContext(b, ctx)); err != nil {
		return false, fmt.Errorf("queue: file the dead letter of %s: %w", l.Job.Call.Key(), err)
	}
	return filed, nil
}

// subject is the one place of a letter.
func (l Letter) subject() (string, error) {
	if l.Job.Spec == nil {
		return "", errors.New("queue: a dead letter without a spec: the call was never to run")
	}
	class, err := classOf(l.Job.Spec.Class)
	if err != nil {
		return "", err
	}
	c := l.Job.Call
	if !call.ValidTenant(c.Tenant) || !call.ValidToolName(c.Tool) {
		return "", fmt.Errorf("queue: a dead letter of tenant %q and tool %q has no subject", c.Tenant, c.Tool)
	}
	return deadPrefix + class + "." + c.Tenant + "." + c.Tool + "." + string(c.Key()), nil
}

// encode makes the message, at most limit bytes long. A job that was queued
// fits, and so does its letter nearly always; where it does not, the spec is
// cut down to what a redrive looks at.
func (l Letter) encode(limit int64) ([]byte, error) {
	data, err := json.Marshal(l)
	if err != nil || int64(len(data)) <= limit {
		return data, err
	}
	spec := l.Job.Spec
	l.Job.Spec = &catalog.Spec{Name: spec.Name, Class: spec.Class, Annotations: spec.Annotations}
	return json.Marshal(l)
}
