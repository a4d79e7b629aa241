package queue

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ConsumerInfo lets a test see how many pulls wait.
func ConsumerInfo(ctx context.Context, q *Queue, class string) (*jetstream.ConsumerInfo, error) {
	class, err := classOf(class)
	if err != nil {
		return nil, err
	}
	c, err := q.ready.Consumer(ctx, consumerName(class))
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// Adopt lets a test look for orphans without the watchdog's clock.
func Adopt(ctx context.Context, q *Queue, class string, floor uint64) (int, error) {
	return q.adopt(ctx, class, floor)
}

// Watch makes a server's watchdog look often and lose its patience soon.
func Watch(s *Server, every, patience time.Duration) { s.watchEvery, s.stuckAfter = every, patience }

// Beat lets a test have one heartbeat and no second one.
func Beat(ctx context.Context, r *Registry, w WorkerInfo) error { return r.beat(ctx, w) }
