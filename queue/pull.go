package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// pullExpiry is how long one pull waits at the server.
	pullExpiry = 30 * time.Second
	// pullHeartbeat is how often the server says that a pull still waits. Two
	// missed ones mean that it does not: the server was restarted, or the
	// consumer has another leader.
	pullHeartbeat = 2 * time.Second
	// drainTimeout bounds the wait for a delivery that was on its way when a
	// pull was given up.
	drainTimeout = 2 * time.Second
)

// errPull says that a pull ended other than by a delivery or its expiry.
var errPull = errors.New("queue: the pull was ended")

// puller asks for one delivery at a time: never more than its slot can work
// on, for what waits in a client's buffer is waiting for nobody else.
//
// It speaks the pull protocol itself. The client library's Fetch unsubscribes
// when its context ends, and a delivery that was on its way by then is lost
// until the ack wait is over; here it is given back at once (see close).
type puller struct {
	nc      *nats.Conn
	subject string
	sub     *nats.Subscription
	// waits is true while a request of ours may be waiting at the server.
	waits bool
}

func newPuller(q *Queue, class string) *puller {
	return &puller{nc: q.js.Conn(), subject: q.api + "CONSUMER.MSG.NEXT." + ReadyStream + "." + consumerName(class)}
}

// pullRequest is one pull, as the server reads it; durations in nanoseconds.
type pullRequest struct {
	Batch     int           `json:"batch"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// request sends a pull, unless one waits.
func (p *puller) request() error {
	if p.waits {
		return nil
	}
	if p.sub == nil {
		sub, err := p.nc.SubscribeSync(p.nc.NewInbox())
		if err != nil {
			return fmt.Errorf("queue: pull: %w", err)
		}
		p.sub = sub
	}
	body, err := json.Marshal(pullRequest{Batch: 1, Expires: pullExpiry, Heartbeat: pullHeartbeat})
	if err != nil {
		return fmt.Errorf("queue: pull: %w", err)
	}
	if err := p.nc.PublishRequest(p.subject, p.sub.Subject, body); err != nil {
		return fmt.Errorf("queue: pull: %w", err)
	}
	p.waits = true
	return nil
}

// next waits for one delivery. It returns nil without an error when the pull
// expired, and errPull when something is wrong with the consumer; the pull is
// over then, and the caller may call next again.
func (p *puller) next(ctx context.Context) (*nats.Msg, error) {
	if err := p.request(); err != nil {
		return nil, err
	}
	for {
		msg, err := p.wait(ctx)
		if err != nil {
			return nil, err
		}
		switch status := msg.Header.Get("Status"); status {
		case "":
			p.waits = false
			return msg, nil
		case "100": // heartbeat
		case "404", "408": // nothing came until the pull expired
			p.waits = false
			return nil, nil
		default: // 409 consumer deleted or moved, 503 nobody there
			p.close(ctx)
			return nil, fmt.Errorf("%w: %s %s", errPull, status, msg.Header.Get("Description"))
		}
	}
}

// wait waits for anything that the server says about the pull.
func (p *puller) wait(ctx context.Context) (*nats.Msg, error) {
	alive, cancel := context.WithTimeout(ctx, 2*pullHeartbeat+pullHeartbeat/2)
	defer cancel()
	msg, err := p.sub.NextMsgWithContext(alive)
	switch {
	case err == nil:
		return msg, nil
	case errors.Is(err, nats.ErrNoResponders):
		p.close(ctx)
		return nil, fmt.Errorf("%w: there is no such consumer, or no JetStream", errPull)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	p.close(ctx)
	return nil, fmt.Errorf("%w: no heartbeat: %w", errPull, err)
}

// close gives a pull up. The server may have answered it already, so the
// subscription is drained, not dropped, and what comes is given back.
func (p *puller) close(ctx context.Context) {
	sub, waits := p.sub, p.waits
	p.sub, p.waits = nil, false
	switch {
	case sub == nil:
		return
	case !waits || sub.Drain() != nil:
		_ = sub.Unsubscribe() // fails on a closed connection only
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return
		}
		if msg.Header.Get("Status") == "" {
			_ = p.nc.Publish(msg.Reply, []byte("-NAK")) // when it fails, the ack wait gives it back
		}
	}
}
