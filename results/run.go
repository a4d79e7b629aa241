package results

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// Run is the shared follower: one ordered consumer, fanned out. It begins
// where the stream ended when the log was opened, or where an earlier Run
// stopped, so nothing between is missed. It returns when ctx is done.
//
// In a process that follows all kinds it also reads the stream's history once,
// for [Log.List] and [Log.Unfinished].
func (l *Log) Run(ctx context.Context) error {
	l.running.Add(1)
	defer l.running.Add(-1)
	g, both := errgroup.WithContext(ctx)
	g.Go(func() error { return l.share(both) })
	g.Go(func() error { return l.keepTime(both) })
	if l.followsAll() {
		g.Go(func() error { return l.loadHistory(both) })
	}
	if err := g.Wait(); ctx.Err() == nil {
		return fmt.Errorf("results: run: %w", err)
	}
	return nil
}

// keepTime asks for the server's time now and then until ctx is done: a process
// that appends little, or nothing but starts and results, asks for no other
// reason.
func (l *Log) keepTime(ctx context.Context) error {
	for pause(ctx, l.lookEvery) {
		l.fill.refresh(ctx, l.lookEvery/2)
	}
	return context.Cause(ctx)
}

// share keeps an ordered consumer going until ctx is done. The client library
// makes a new consumer after gaps, missed heartbeats and reconnects; this loop
// is for what ends even that.
func (l *Log) share(ctx context.Context) error {
	b := newBackOff()
	for {
		began := time.Now()
		err := l.consume(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Since(began) > time.Minute {
			b.Reset()
		}
		l.opts.Log.Warn("shared follower begins anew", "error", err, "position", l.fan.position())
		if !pause(ctx, b.NextBackOff()) {
			return context.Cause(ctx)
		}
	}
}

// pause waits for d; false means that ctx was done first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// consume runs one ordered consumer until it ends or ctx is done.
func (l *Log) consume(ctx context.Context) error {
	cons, err := l.js.OrderedConsumer(ctx, Stream, jetstream.OrderedConsumerConfig{
		FilterSubjects:    l.filters(),
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       l.fan.position() + 1,
		InactiveThreshold: time.Minute,
	})
	if err != nil {
		return fmt.Errorf("ordered consumer: %w", err)
	}
	cc, err := cons.Consume(l.receive, jetstream.PullHeartbeat(consumerHeartbeat), jetstream.PullExpiry(consumerExpiry),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			if ctx.Err() == nil {
				l.opts.Log.Debug("shared follower", "error", err)
			}
		}))
	if err != nil {
		return fmt.Errorf("ordered consumer: %w", err)
	}
	select {
	case <-ctx.Done():
		cc.Stop()
		<-cc.Closed()
		return context.Cause(ctx)
	case <-cc.Closed():
		return errors.New("the consumer ended")
	}
}

// A consumer that died is noticed after two heartbeats.
const (
	consumerHeartbeat = 2 * time.Second
	consumerExpiry    = 30 * time.Second
)

// filters are the subjects of the kinds that this process follows.
func (l *Log) filters() []string {
	if l.followsAll() {
		return []string{prefix + "*.*.*"}
	}
	var f []string
	for _, kind := range l.opts.Kinds {
		f = append(f, prefix+"*.*."+kind)
	}
	return f
}

// receive takes one message of the shared follower.
func (l *Log) receive(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	ref, kind, ok := parseSubject(msg.Subject())
	if err != nil || !ok {
		l.opts.Log.Error("unreadable entry in the log", "subject", msg.Subject(), "error", err)
		return
	}
	e := Entry{Seq: meta.Sequence.Stream, Kind: kind, Time: meta.Timestamp, Data: msg.Data(), ref: ref}
	if l.followsAll() {
		// Before the followers: what a client has seen is in the list.
		l.index.take(e)
	}
	l.fan.publish(e)
}

// loadHistory reads what was in the stream when the log was opened, for the
// index. The kinds are read one after another; the index does not mind the
// order.
func (l *Log) loadHistory(ctx context.Context) error {
	if l.index.isLoaded() {
		return nil
	}
	for _, kind := range indexed {
		if err := l.loadKind(ctx, kind); err != nil {
			return fmt.Errorf("history of %s: %w", kind, err)
		}
	}
	l.index.loadedAll()
	return nil
}

func (l *Log) loadKind(ctx context.Context, kind string) error {
	var seq uint64
	for seq < l.start {
		var page []Entry
		err := backoff.Retry(func() (err error) {
			page, err = l.server.read(ctx, prefix+"*.*."+kind, seq+1)
			if err != nil && !passing(err) {
				return backoff.Permanent(err)
			}
			return err
		}, backoff.WithContext(newBackOff(), ctx))
		if err != nil || len(page) == 0 {
			return err
		}
		for _, e := range page {
			l.index.take(e)
			seq = e.Seq
		}
	}
	return nil
}
