package bench

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// BenchmarkCall is everything of a call that is not its sandbox, straight at
// the dispatcher and through the HTTP door.
func BenchmarkCall(b *testing.B) {
	bus := benchBus(b, busConfig{slots: busSlots})
	for _, way := range []struct {
		name string
		f    func(context.Context) error
	}{{"submit", bus.call}, {"http", bus.post}} {
		for _, atOnce := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("%s/%d", way.name, atOnce), func(b *testing.B) { benchFlood(b, atOnce, way.f) })
		}
	}
}

// BenchmarkNoop is a call whose worker does what the log asks for and no more,
// beside the same messages sent through JetStream by themselves.
func BenchmarkNoop(b *testing.B) {
	fleet := benchBus(b, busConfig{slots: rateSlots, noop: true})
	if err := fleet.call(b.Context()); err != nil {
		b.Fatal(err)
	}
	bare, err := openBareBus(b.Context(), b.TempDir(), fleet.nc)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(bare.close)
	for _, atOnce := range atOnce {
		b.Run(fmt.Sprintf("fleet/%d", atOnce), func(b *testing.B) { benchFlood(b, atOnce, fleet.call) })
		b.Run(fmt.Sprintf("bare/%d", atOnce), func(b *testing.B) { benchFlood(b, atOnce, bare.call) })
	}
}

func benchBus(b *testing.B, c busConfig) *bus {
	c.dir = b.TempDir()
	bus, err := openBus(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := bus.close(); err != nil {
			b.Error(err)
		}
	})
	return bus
}

func benchFlood(b *testing.B, atOnce int, f func(context.Context) error) {
	b.ReportAllocs()
	e, err := flood(b.Context(), b.N, atOnce, f)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(milliseconds(e.cpu), "cpu-ms/op")
	b.ReportMetric(e.rate, "calls/s")
}
