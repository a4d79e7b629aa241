package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// BenchmarkCall is everything of a call that is not its sandbox, straight at
// the dispatcher and through the HTTP door.
func BenchmarkCall(b *testing.B) {
	bus, err := openBus(b.Context(), b.TempDir(), busSlots)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := bus.close(); err != nil {
			b.Error(err)
		}
	})
	for _, way := range []struct {
		name string
		f    func(context.Context) error
	}{{"submit", bus.call}, {"http", bus.post}} {
		for _, atOnce := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("%s/%d", way.name, atOnce), func(b *testing.B) {
				b.ReportAllocs()
				e, err := flood(b.Context(), b.N, atOnce, way.f)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(e.cpu)/float64(time.Millisecond), "cpu-ms/op")
				b.ReportMetric(e.rate, "calls/s")
			})
		}
	}
}
