package part

import (
	"context"
	"time"

	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// watched are the streams that refuse or forget when they are full.
var watched = [...]string{results.Stream, queue.CallsStream, queue.ReadyStream, queue.DeadStream}

// Observe sets the gauges of what all dispatchers see alike: who works, what waits,
// how full the streams are. Whoever serves a dispatcher's metrics calls it before
// each scrape. When the server does not answer within a second, what was seen last
// stands, and nats_connected may tell why.
func (b *Bus) Observe(ctx context.Context, m *metrics.Metrics) {
	m.SetNATS(b.Ready() == nil)
	now, ages := b.Log.Now(), map[string]time.Duration{}
	for class, w := range b.Log.Waiting() {
		ages[class] = now.Sub(w.Since)
	}
	m.SetOldestWaiting(ages)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if workers, err := b.Registry.List(ctx); err == nil {
		classes := map[string]int{}
		for _, w := range workers {
			classes[w.Class]++
		}
		m.SetWorkers(classes)
	}
	if n, err := b.Registry.Lost(ctx); err == nil {
		m.WorkersLost(n)
	}
	for _, name := range watched {
		stream, err := b.js.Stream(ctx, name)
		if err != nil {
			return
		}
		info := stream.CachedInfo()
		m.SetStream(name, info.State.Bytes, info.Config.MaxBytes)
	}
}
