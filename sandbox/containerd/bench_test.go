package containerd_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// The three benchmarks are meant to be run together and compared:
//
//	go test -run '^$' -bench . -benchtime 30x ./sandbox/containerd
//
// BenchmarkBare is what anybody gets from containerd: default configuration,
// default spec, one snapshot each. BenchmarkCold is a whole sandbox, started,
// spoken to and closed. BenchmarkStart leaves the close out of the time.

// report prints the median, which says more than the mean: a slow disk has
// outliers.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
}

func BenchmarkCold(b *testing.B) {
	rt := open(b, "bench")
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		inst := startShell(b, rt, fmt.Sprintf("cold-%d", n))
		if err := inst.Close(endCtx(b)); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	report(b, took)
}

func BenchmarkStart(b *testing.B) {
	rt := open(b, "bench")
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		inst := startShell(b, rt, fmt.Sprintf("start-%d", n))
		took = append(took, time.Since(began))
		b.StopTimer()
		if err := inst.Close(endCtx(b)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	report(b, took)
}

// startShell starts a sandbox and has one byte come back.
func startShell(b *testing.B, rt *containerd.Runtime, id string) sandbox.Instance {
	inst, err := rt.Start(b.Context(), id, sandbox.Spec{Image: testImage})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := inst.Write([]byte("echo\n")); err != nil {
		b.Fatal(err)
	}
	if _, err := inst.Read(make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
	return inst
}

func BenchmarkBare(b *testing.B) {
	bare, err := containerd.StartBare(b.Context(), binDir, "/var/tmp", testArchive(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := bare.Stop(); err != nil {
			b.Error(err)
		}
	})
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		if err := bare.Run(b.Context(), fmt.Sprintf("bare-%d", n), "/bin/busybox", "true"); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	report(b, took)
}
