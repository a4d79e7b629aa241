package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// orphansAtOnce bounds how many orphans are taken out in one look.
const orphansAtOnce = 1000

// adopt takes what the consumer of a class has lost out of READY, and says how
// much. The keeper finds those calls in no queue then and pushes them again:
// a worker that makes no jobs needs no permission to.
//
// A server may forget messages that nobody acknowledged: its floor passes them,
// they stay in the stream, count as neither pending nor in flight, and are
// delivered to nobody, for ever. We know of one way (see take) and go around
// it; a call that is never answered is too high a price for the next one.
//
// floor is one below which an acknowledged message is certainly gone from the
// stream: the consumer's own, of a while ago. An orphan loses its place in
// the line.
//
// Rebuilding the consumer would do as well, but gives every delivery that is
// in flight to a second worker.
func (q *Queue) adopt(ctx context.Context, class string, floor uint64) (n int, err error) {
	for range orphansAtOnce {
		msg, err := q.ready.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(readyPrefix+class+".*"))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return n, nil
		case err != nil:
			return n, fmt.Errorf("queue: look for orphans: %w", err)
		case msg.Sequence > floor:
			return n, nil
		}
		if err := drop(ctx, q.ready, msg.Sequence); err != nil {
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // another worker looks, too, and was first
			}
			return n, fmt.Errorf("queue: take an orphan out: %w", err)
		}
		n++
	}
	return n, nil
}
