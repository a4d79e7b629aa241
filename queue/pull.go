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
	// pullBuffer is more than the server says about one pull between two looks.
	pullBuffer = 16
)

// errPull says that a pull ended other than by a delivery or its expiry.
var errPull = errors.New("queue: the pull was ended")

// errAway says that the server was lost, and the pull with it.
var errAway = errors.New("queue: the server is away")

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
	// msgs takes what the server says about the pull: one delivery, or a few
	// heartbeats and an end. The library's own buffer for a subscription takes
	// half a megabyte, and there is a puller in each slot.
	msgs chan *nats.Msg
	// gone is closed when the subscription has ended.
	gone chan struct{}
	// waits is true while a request of ours may be waiting at the server.
	waits bool
	// away tells when the server was lost, and every pull that waited there
	// with it.
	away chan nats.Status
}

func newPuller(q *Queue, class string) *puller {
	nc := q.js.Conn()
	return &puller{
		nc: nc, subject: q.api + "CONSUMER.MSG.NEXT." + ReadyStream + "." + consumerName(class),
		away: nc.StatusChanged(nats.RECONNECTING),
	}
}

// end gives up what waits and ends the puller.
func (p *puller) end() {
	p.close()
	p.nc.RemoveStatusListener(p.away)
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
		if err := p.subscribe(); err != nil {
			return fmt.Errorf("queue: pull: %w", err)
		}
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

func (p *puller) subscribe() (err error) {
	p.msgs, p.gone = make(chan *nats.Msg, pullBuffer), make(chan struct{})
	if p.sub, err = p.nc.ChanSubscribe(p.nc.NewInbox(), p.msgs); err != nil {
		return err
	}
	gone := p.gone
	p.sub.SetClosedHandler(func(string) { close(gone) })
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
			p.close()
			return nil, fmt.Errorf("%w: %s %s", errPull, status, msg.Header.Get("Description"))
		}
	}
}

// wait waits for anything that the server says about the pull.
func (p *puller) wait(ctx context.Context) (*nats.Msg, error) {
	alive := time.NewTimer(2*pullHeartbeat + pullHeartbeat/2)
	defer alive.Stop()
	select {
	case msg := <-p.msgs:
		return msg, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-p.gone:
		p.sub, p.waits = nil, false
		return nil, fmt.Errorf("%w: the connection is closed", errPull)
	case <-p.away:
		p.close()
		return nil, errAway
	case <-alive.C:
		p.close()
		return nil, fmt.Errorf("%w: no heartbeat for %s", errPull, 2*pullHeartbeat)
	}
}

// close gives a pull up. The server may have answered it already, so the
// subscription is drained, not dropped, and what comes is given back.
func (p *puller) close() {
	sub, waits := p.sub, p.waits
	p.sub, p.waits = nil, false
	switch {
	case sub == nil:
		return
	case !waits || !p.nc.IsConnected() || sub.Drain() != nil:
		_ = sub.Unsubscribe() // fails on a closed connection only
	default:
		timer := time.NewTimer(drainTimeout)
		defer timer.Stop()
		select {
		case <-p.gone:
		case <-timer.C:
		}
	}
	for {
		select {
		case msg := <-p.msgs:
			if msg.Header.Get("Status") == "" {
				_ = p.nc.Publish(msg.Reply, []byte("-NAK")) // when it fails, the ack wait gives it back
			}
		default:
			return
		}
	}
}
