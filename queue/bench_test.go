package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

// BenchmarkPushToHandler is the way of one job to an idle worker.
func BenchmarkPushToHandler(b *testing.B) {
	q := open(b, natsdtest.JetStream(b), queue.Options{})
	had := make(chan struct{}, 1)
	serve(b, &queue.Server{Queue: q, Slots: 4, Log: slog.New(slog.DiscardHandler), Handler: queue.HandlerFunc(func(ctx context.Context, d *queue.Delivery) {
		had <- struct{}{}
		if err := d.Ack(ctx); err != nil {
			b.Error(err)
		}
	})})
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		push(b, q, fmt.Sprint(i))
		<-had
		i++
	}
}
