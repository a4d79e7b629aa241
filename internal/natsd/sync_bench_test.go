package natsd_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

// BenchmarkSync tells what sync_interval: always costs: the median of one
// publish of 1 KiB at a time, and the rate of 64 at once, on one server and on
// three. docs/operations.md has the ratios; the disk decides them.
func BenchmarkSync(b *testing.B) {
	for _, servers := range []int{1, 3} {
		for _, always := range []bool{false, true} {
			b.Run(fmt.Sprintf("servers=%d/always=%v", servers, always), func(b *testing.B) {
				js := onServers(b, servers, always)
				if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: servers, Storage: jetstream.FileStorage}); err != nil {
					b.Fatal(err)
				}
				b.Run("one", func(b *testing.B) { publishOne(b, js) })
				b.Run("many", func(b *testing.B) { publishMany(b, js) })
			})
		}
	}
}

func onServers(b *testing.B, servers int, always bool) jetstream.JetStream {
	b.Helper()
	if servers == 1 {
		return natsdtest.JetStreamOn(b, natsdtest.StartWith(b, natsd.Config{StoreDir: b.TempDir(), SyncAlways: always}))
	}
	return natsdtest.ClusterWith(b, natsd.Config{SyncAlways: always})[0]
}

var kibibyte = make([]byte, 1<<10)

func publishOne(b *testing.B, js jetstream.JetStream) {
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := js.Publish(b.Context(), "s", kibibyte); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
}

func publishMany(b *testing.B, js jetstream.JetStream) {
	const publishers = 64
	next := make(chan struct{}, publishers)
	var all sync.WaitGroup
	for range publishers {
		all.Go(func() {
			for range next {
				if _, err := js.Publish(b.Context(), "s", kibibyte); err != nil {
					b.Error(err)
				}
			}
		})
	}
	began, n := time.Now(), 0
	for b.Loop() {
		next <- struct{}{}
		n++
	}
	close(next)
	all.Wait()
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "publishes/s")
}
