package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// Delivery is one job in one slot's hands.
type Delivery struct {
	Job catalog.Job
	// Delivered counts deliveries, 1 for the first.
	Delivered int

	nc  *nats.Conn
	msg *nats.Msg
	end atomic.Int32 // one of the ends below
}

// How a delivery can end.
const (
	endNone int32 = iota
	endAck
	endRetry
	endTerm
)

// settled reports whether the delivery has ended.
func (d *Delivery) settled() bool { return d.end.Load() != endNone }

var (
	errNewer  = errors.New("queue: the job was written by a newer version")
	errPoison = errors.New("queue: the message is no job")
)

// newDelivery reads a message. It returns a delivery even with an error, so
// that the message can be settled.
func newDelivery(nc *nats.Conn, msg *nats.Msg) (*Delivery, error) {
	d := &Delivery{nc: nc, msg: msg}
	meta, err := msg.Metadata()
	if err != nil {
		return d, fmt.Errorf("%w: %w", errPoison, err)
	}
	d.Delivered = int(meta.NumDelivered)
	err = json.Unmarshal(msg.Data, &d.Job)
	if v := versionOf(msg.Data, d.Job, err); v > call.Version {
		return d, fmt.Errorf("%w: %d, and this worker reads %d", errNewer, v, call.Version)
	}
	if err != nil {
		return d, fmt.Errorf("%w: %w", errPoison, err)
	}
	if d.Job.Spec == nil || !strings.HasSuffix(msg.Subject, "."+string(d.Job.Call.Key())) {
		return d, fmt.Errorf("%w: without a spec, or under another call's subject", errPoison)
	}
	return d, nil
}

// versionOf is the version of a job, also of one that this version cannot read.
func versionOf(data []byte, job catalog.Job, err error) int {
	if err == nil {
		return job.Version
	}
	var head struct {
		Version int `json:"version"`
	}
	_ = json.Unmarshal(data, &head) // what is no JSON has no version
	return head.Version
}

// Ack ends the delivery for good. It returns once the server has said so, and
// tries again until ctx is done.
func (d *Delivery) Ack(ctx context.Context) error { return d.settle(ctx, endAck, "+ACK") }

// Retry gives the job back; it is delivered again after delay.
func (d *Delivery) Retry(ctx context.Context, delay time.Duration) error {
	if delay <= 0 {
		return d.settle(ctx, endRetry, "-NAK")
	}
	return d.settle(ctx, endRetry, fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds()))
}

// terminate takes the message out of the queue as one that nobody can read.
func (d *Delivery) terminate(ctx context.Context) error { return d.settle(ctx, endTerm, "+TERM") }

// settleTry bounds one try to settle.
const settleTry = 2 * time.Second

// settle sends the delivery's end and waits for the server to confirm it. A
// delivery ends once; the second try to end it is a fault of the handler.
func (d *Delivery) settle(ctx context.Context, end int32, verdict string) error {
	if !d.end.CompareAndSwap(endNone, end) {
		return errors.New("queue: the delivery has ended already")
	}
	try := func() error {
		ctx, cancel := context.WithTimeout(ctx, settleTry)
		defer cancel()
		_, err := d.nc.RequestWithContext(ctx, d.msg.Reply, []byte(verdict))
		if errors.Is(err, nats.ErrConnectionClosed) {
			return backoff.Permanent(err)
		}
		return err
	}
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxElapsedTime(0))
	if err := backoff.Retry(try, backoff.WithContext(b, ctx)); err != nil {
		return fmt.Errorf("queue: settle %s: %w", d.Job.Call.Key(), err)
	}
	return nil
}

// beat keeps the delivery alive until ctx is done or the delivery has ended.
func (d *Delivery) beat(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if d.settled() {
				return
			}
			// A lost heartbeat is made good by the next one. During a
			// disconnect it waits in the client's bounded buffer.
			_ = d.nc.Publish(d.msg.Reply, []byte("+WPI"))
		}
	}
}
