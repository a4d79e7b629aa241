package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Room is how much the queues hold.
type Room struct {
	// Jobs counts the jobs that wait, are ready, or are being worked on.
	Jobs int
	// Used is the part of its bytes that the fuller of the two streams uses.
	Used float64
}

// roomAge is how old an answer of Room may be, and how long one question may
// take: a thousand submits a second ask the server once.
const roomAge = time.Second

// room remembers the last answer.
type room struct {
	asking sync.Mutex // held by the one that asks the server
	known  atomic.Pointer[Room]
	asked  atomic.Pointer[time.Time] // by a clock that nobody sets
}

// Room says how much the queues hold, or held a second ago. A dispatcher looks
// before it takes a call, since what is admitted has to find its place. When the
// server cannot be asked the last answer stands: the admission that follows will
// tell.
func (q *Queue) Room(ctx context.Context) Room {
	r := &q.room
	if asked := r.asked.Load(); (asked == nil || time.Since(*asked) > roomAge) && r.asking.TryLock() {
		defer r.asking.Unlock()
		if now, err := q.askRoom(ctx); err == nil {
			at := time.Now()
			r.known.Store(&now)
			r.asked.Store(&at)
		}
	}
	if known := r.known.Load(); known != nil {
		return *known
	}
	return Room{}
}

func (q *Queue) askRoom(ctx context.Context) (Room, error) {
	ctx, cancel := context.WithTimeout(ctx, roomAge)
	defer cancel()
	var r Room
	for _, stream := range []jetstream.Stream{q.calls, q.ready} {
		info, err := stream.Info(ctx)
		if err != nil {
			return Room{}, err
		}
		r.Jobs += int(info.State.Msgs)
		if limit := info.Config.MaxBytes; limit > 0 {
			r.Used = max(r.Used, float64(info.State.Bytes)/float64(limit))
		}
	}
	return r, nil
}
