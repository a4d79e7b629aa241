package queue

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// watchEvery is how often the watchdog looks.
	watchEvery = 10 * time.Second
	// stuckAfter is how long a consumer may have work and takers and deliver
	// nothing.
	stuckAfter = 30 * time.Second
)

// watch takes out what the consumer has lost (see [Queue.adopt]), and rebuilds
// a consumer that is stuck. Servers have had faults after which a consumer
// counts pending messages and delivers none, for ever and without a word; a
// fleet that waits for one looks healthy and does nothing.
//
// Rebuilding redelivers what is in flight elsewhere. The log bears that: a
// start that may not be repeated is fenced, and a result exists once.
func (s *Server) watch(ctx context.Context, class string) {
	ticker := time.NewTicker(or(s.watchEvery, watchEvery))
	defer ticker.Stop()
	var (
		seen  = dog{patience: or(s.stuckAfter, stuckAfter)}
		floor uint64 // the consumer's, at the last look
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		info, err := s.look(ctx, class)
		if err != nil {
			continue // pulling fails too, and says so
		}
		s.adopt(ctx, class, min(floor, info.AckFloor.Stream))
		floor = info.AckFloor.Stream
		if !seen.stuck(info) {
			continue
		}
		s.Log.Error("consumer has work and delivers none: rebuilding it", "class", class,
			"pending", info.NumPending, "waiting", info.NumWaiting, "in_flight", info.NumAckPending)
		if err := s.rebuild(ctx, class); err != nil && ctx.Err() == nil {
			s.Log.Error("consumer not rebuilt", "class", class, "error", err)
		}
		s.Metrics.ConsumerRebuilt()
		seen.since = time.Time{}
	}
}

// adopt takes out what the consumer has lost.
func (s *Server) adopt(ctx context.Context, class string, floor uint64) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	n, err := s.Queue.adopt(ctx, class, floor)
	if n > 0 {
		s.Log.Warn("jobs that the consumer had lost are taken out, for the keeper to queue again", "class", class, "jobs", n)
		s.Metrics.JobsAdopted(n)
	}
	if err != nil && ctx.Err() == nil {
		s.Log.Warn("the queue could not be looked over for lost jobs", "class", class, "error", err)
	}
}

func (s *Server) look(ctx context.Context, class string) (*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	c, err := s.Queue.ready.Consumer(ctx, consumerName(class))
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

func (s *Server) rebuild(ctx context.Context, class string) error {
	s.making.Lock()
	defer s.making.Unlock()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	err := s.Queue.ready.DeleteConsumer(ctx, consumerName(class))
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	_, err = s.Queue.consumer(ctx, class)
	return err
}

// dog remembers since when a consumer looks stuck.
type dog struct {
	patience  time.Duration
	delivered uint64
	since     time.Time
}

// stuck reports whether the consumer has had work, takers and room, and has
// delivered nothing, for as long as its patience. Times are the server's.
func (d *dog) stuck(info *jetstream.ConsumerInfo) bool {
	idle := info.NumPending > 0 && info.NumWaiting > 0 && info.NumAckPending < maxAckPending && !info.Paused
	if !idle || d.since.IsZero() || info.Delivered.Consumer != d.delivered {
		d.delivered, d.since = info.Delivered.Consumer, time.Time{}
		if idle {
			d.since = info.TimeStamp
		}
		return false
	}
	return info.TimeStamp.Sub(d.since) >= d.patience
}
