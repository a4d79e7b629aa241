package part

import (
	"log/slog"
	"testing"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

// The log has the size that it was given, until somebody gives it another.
func TestTheLogKeepsItsSize(t *testing.T) {
	nc := natsdtest.Connect(t, natsdtest.Start(t))
	for _, step := range []struct{ gib, want int64 }{{0, 4}, {8, 8}, {0, 8}, {2, 2}, {0, 2}} {
		o := BusOptions{LogBytes: StreamsConfig{LogGiB: step.gib}.LogBytes()}
		if _, err := OpenBus(t.Context(), nc, o, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		s, err := jetStream(t, nc).Stream(t.Context(), results.Stream)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.CachedInfo().Config.MaxBytes; got != step.want<<30 {
			t.Fatalf("told %d GiB, the log has %d bytes, want %d GiB", step.gib, got, step.want)
		}
	}
}
