package results

import (
	"context"
	"time"
)

// Refill makes l look how full the stream is, now and not in a second.
func Refill(ctx context.Context, l *Log) {
	l.fill.looked.Store(0)
	l.fill.over(ctx, 1)
}

// SetIndexLimit makes the index small enough to overflow in a test.
func SetIndexLimit(l *Log, n int) { l.index.limit = n }

// SetPoll makes a follower without a shared follower ask more often.
func SetPoll(l *Log, d time.Duration) { l.poll = d }
