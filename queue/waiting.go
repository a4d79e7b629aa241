package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/failpoint"
)

// Waiting is a job in CALLS, as far as its place there tells.
type Waiting struct {
	Address
	// Seq is where it stands: jobs of lower numbers came earlier.
	Seq uint64
	// Since is when it came, by the server's clock.
	Since time.Time
	// MaxInFlight is how many calls of its tool may run at once, as its spec
	// says; 0 is no bound.
	MaxInFlight int
}

// Waits tells take of every job in CALLS, oldest first, and then of each that
// comes, until ctx is done or the reader breaks. take is called by one
// goroutine. A job that left meanwhile may be told of all the same.
//
// The jobs themselves are not read: that would be megabytes at every takeover,
// for what a line of text says.
func (q *Queue) Waits(ctx context.Context, take func(Waiting)) error {
	c, err := q.js.OrderedConsumer(ctx, CallsStream, jetstream.OrderedConsumerConfig{HeadersOnly: true, InactiveThreshold: time.Minute})
	if err != nil {
		return fmt.Errorf("queue: read %s: %w", CallsStream, err)
	}
	run, err := c.Consume(func(msg jetstream.Msg) {
		if w, ok := waitingOf(msg); ok {
			take(w)
		}
	}, jetstream.PullHeartbeat(pullHeartbeat), jetstream.PullExpiry(pullExpiry))
	if err != nil {
		return fmt.Errorf("queue: read %s: %w", CallsStream, err)
	}
	select {
	case <-ctx.Done():
		run.Stop()
		<-run.Closed()
		return context.Cause(ctx)
	case <-run.Closed():
		return fmt.Errorf("queue: read %s: the consumer ended", CallsStream)
	}
}

// waitingOf reads what stands around a job. What is not ours is passed over.
func waitingOf(msg jetstream.Msg) (Waiting, bool) {
	a, ok := parseWaiting(msg.Subject())
	meta, err := msg.Metadata()
	if !ok || err != nil {
		return Waiting{}, false
	}
	limit, _ := strconv.Atoi(msg.Headers().Get(headerMaxInFlight)) // absent: no bound
	return Waiting{Address: a, Seq: meta.Sequence.Stream, Since: meta.Timestamp, MaxInFlight: limit}, true
}

// parseWaiting reads a subject of CALLS.
func parseWaiting(subject string) (Address, bool) {
	rest, ok := strings.CutPrefix(subject, callsPrefix)
	t := strings.Split(rest, ".")
	if !ok || len(t) != 5 {
		return Address{}, false
	}
	key, err := call.ParseKey(t[4])
	return Address{Class: t[0], Priority: t[1], Tenant: t[2], Tool: t[3], Key: key}, err == nil
}

// Promote moves the job that stands at seq in CALLS to READY; false means that
// it is not there any more.
//
// It is in READY before it leaves CALLS, so a crash between leaves it in both
// and loses nothing: READY takes it once, and when it is promoted again after
// it has run, the worker finds its result.
func (q *Queue) Promote(ctx context.Context, seq uint64) (bool, error) {
	msg, err := q.calls.GetMsg(ctx, seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("queue: promote: %w", err)
	}
	a, ok := parseWaiting(msg.Subject)
	if !ok {
		return false, q.Drop(ctx, seq)
	}
	subject, err := a.ready()
	if err != nil {
		return false, err
	}
	if _, err := q.js.Publish(ctx, subject, msg.Data); err != nil {
		if err := refused(ctx, q.ready, subject, err); !errors.Is(err, ErrWaiting) {
			return false, err
		}
	}
	failpoint.Hit(failpoint.Pushed)
	return true, q.Drop(ctx, seq)
}

// Drop deletes the job that stands at seq in CALLS, if it is there.
func (q *Queue) Drop(ctx context.Context, seq uint64) error {
	if err := drop(ctx, q.calls, seq); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("queue: drop %d from %s: %w", seq, CallsStream, err)
	}
	return nil
}

// Ready lists the calls that are in READY, waiting for a slot or being worked
// on, with their classes.
func (q *Queue) Ready(ctx context.Context) (map[call.Key]string, error) {
	info, err := q.ready.Info(ctx, jetstream.WithSubjectFilter(readyPrefix+">"))
	if err != nil {
		return nil, fmt.Errorf("queue: list %s: %w", ReadyStream, err)
	}
	calls := make(map[call.Key]string, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		class, key, _ := strings.Cut(strings.TrimPrefix(subject, readyPrefix), ".")
		calls[call.Key(key)] = class
	}
	return calls, nil
}
