package queue_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

// candidate stands for election on a connection of its own.
type candidate struct {
	js jetstream.JetStream
	// elected says when a term begins, lost when it ends.
	elected, lost chan struct{}
	stop          func()
}

// TestOneLeads has three candidates. One leads; when it stops, or its connection
// is gone, another does, and the first knows.
func TestOneLeads(t *testing.T) {
	s := natsdtest.Start(t)
	var leaders, most atomic.Int32
	stand := func() *candidate {
		c := &candidate{js: natsdtest.JetStreamOn(t, s), elected: make(chan struct{}, 10), lost: make(chan struct{}, 10)}
		q := open(t, c.js, queue.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- q.Lead(ctx, "me", func(ctx context.Context) {
				most.Store(max(most.Load(), leaders.Add(1)))
				c.elected <- struct{}{}
				<-ctx.Done()
				leaders.Add(-1)
				c.lost <- struct{}{}
			})
		}()
		c.stop = cancel
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return c
	}
	first := stand()
	get(t, first.elected, "the first term")
	second := stand()
	first.stop()
	get(t, first.lost, "the end of the first term")
	get(t, second.elected, "the second term")
	third := stand()
	second.js.Conn().Close()
	get(t, second.lost, "the end of a term whose lease cannot be renewed")
	get(t, third.elected, "the third term")
	if n := most.Load(); n != 1 {
		t.Errorf("%d led at a time", n)
	}
}

// leaderless is servers that do not know yet who leads a bucket.
type leaderless struct {
	jetstream.JetStream
	asked atomic.Int32
}

func (l *leaderless) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	if l.asked.Add(1) == 1 {
		return nil, context.DeadlineExceeded
	}
	return l.JetStream.KeyValue(ctx, bucket)
}

// TestLeadWaitsForTheServersLeader has servers that are late with an answer.
func TestLeadWaitsForTheServersLeader(t *testing.T) {
	q := open(t, &leaderless{JetStream: natsdtest.JetStream(t)}, queue.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	elected := false
	err := q.Lead(ctx, "me", func(context.Context) { elected = true; cancel() })
	if err != nil || !elected {
		t.Errorf("elected: %t, %v", elected, err)
	}
}
