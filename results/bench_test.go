package results_test

import (
	"fmt"
	"testing"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

// BenchmarkProgress is one guarded append.
func BenchmarkProgress(b *testing.B) {
	l := open(b, natsdtest.JetStream(b), results.Options{})
	ref, _ := admit(b, l, "c")
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if err := l.Progress(b.Context(), ref, progress(i), false); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkAdmitFollowFinish is everything that the log adds to a warm call:
// admission, a follower, a look, claim, start and result, until the follower
// has seen it.
func BenchmarkAdmitFollowFinish(b *testing.B) {
	l := open(b, natsdtest.JetStream(b), results.Options{})
	w := results.Worker{ID: "w", Incarnation: "i"}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		ref, seq := admit(b, l, fmt.Sprint("c", i))
		f, err := l.Follow(b.Context(), ref, seq)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.Look(b.Context(), ref); err != nil {
			b.Fatal(err)
		}
		if err := l.Claim(b.Context(), ref, w, 1); err != nil {
			b.Fatal(err)
		}
		if _, _, err := l.Start(b.Context(), ref, results.Marker{Worker: w, Attempt: 1}); err != nil {
			b.Fatal(err)
		}
		if _, err := l.Finish(b.Context(), ref, "c", success("ok")); err != nil {
			b.Fatal(err)
		}
		if got := drain(b, f); len(got) != 3 {
			b.Fatal(kinds(got))
		}
		f.Stop()
		i++
	}
}
