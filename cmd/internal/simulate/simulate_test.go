package simulate

import (
	"bytes"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// every is what the page shows: each load under each scaling, once for all tests.
var every = sync.OnceValue(func() []Outcome {
	var all []Outcome
	for _, l := range Loads() {
		for _, s := range Settings() {
			all = append(all, Run(l, s, 1))
		}
	}
	return all
})

// fixed is a fleet of so many workers of eight slots, which does not scale.
func fixed(workers int) Scaling {
	s := Chart()
	s.MinWorkers, s.MaxWorkers = workers, workers
	return s
}

func TestEveryCallIsServedOnce(t *testing.T) {
	for _, o := range every() {
		if o.Arrived == 0 || o.Served != o.Arrived || len(o.Waits) != o.Arrived {
			t.Errorf("%s, %s: %d calls came and %d were served, %d waits", o.Load, o.Scaling, o.Arrived, o.Served, len(o.Waits))
		}
		if o.Waits[0] < 0 {
			t.Errorf("%s, %s: a call started before it came", o.Load, o.Scaling)
		}
	}
}

// Little's law, in its form for a run that begins and ends empty: the calls that
// wait, summed over time, are the waits, summed over calls. Both are counted apart,
// in whole nanoseconds.
func TestLittlesLaw(t *testing.T) {
	for _, o := range every() {
		var sum time.Duration
		for _, w := range o.Waits {
			sum += w
		}
		if sum != o.Waiting {
			t.Errorf("%s, %s: calls waited for %s, and over time it was %s", o.Load, o.Scaling, sum, o.Waiting)
		}
	}
}

// Steady calls on a fleet that does not scale are a queue that Erlang solved.
func TestSteadyLoadWaitsAsErlangSays(t *testing.T) {
	const offered, servers, seeds = 6.0, 8.0, 12
	l := Steady()
	l.Streams[0].Rate = offered / l.Service.Seconds()
	var waited, used, took float64
	calls := 0
	for seed := range uint64(seeds) {
		o := Run(l, fixed(1), seed)
		waited, used, took = waited+o.Waiting.Seconds(), used+o.Used.Seconds(), took+o.Took.Seconds()
		calls += o.Arrived
	}
	got, want := waited/float64(calls), erlangC(offered, servers)*l.Service.Seconds()/(servers-offered)
	if math.Abs(got/want-1) > 0.1 {
		t.Errorf("a call waits %.3f s in the mean; Erlang's formula says %.3f", got, want)
	}
	if math.Abs(used/took/offered-1) > 0.02 {
		t.Errorf("%.2f slots are busy in the mean; Little's law says %.0f", used/took, offered)
	}
}

// erlangC is the part of the calls that wait at all.
func erlangC(offered, servers float64) float64 {
	blocked := 1.0 // Erlang's B, by its recursion
	for n := 1.0; n <= servers; n++ {
		blocked = offered * blocked / (n + offered*blocked)
	}
	return blocked / (1 - offered/servers*(1-blocked))
}

// A tenant that floods keeps the others waiting for little longer than they would
// wait without it, while its own calls wait for minutes.
func TestSmallTenantsAreNotStarved(t *testing.T) {
	o := Run(OneHeavy(), fixed(4), 1)
	if heavy := Quantile(o.Waits, 1); heavy < time.Minute {
		t.Fatalf("the heavy tenant's last call waited %s; it is no flood", heavy)
	}
	if small := Quantile(o.SmallWaits, 1); small > 5*time.Second {
		t.Errorf("a call of a small tenant waited %s beside a flood", small)
	}
}

func TestARunIsTheSameEachTime(t *testing.T) {
	if diff := cmp.Diff(Run(Burst(), Chart(), 7), Run(Burst(), Chart(), 7)); diff != "" {
		t.Errorf("the same seed made another run:\n%s", diff)
	}
	if cmp.Equal(Run(Steady(), fixed(4), 7), Run(Steady(), fixed(4), 8)) {
		t.Error("another seed made the same run")
	}
}

// The rules of the autoscaler, each on a case of its own.
func TestTheAutoscalerDecides(t *testing.T) {
	s := Chart() // six calls a worker, 1 to 20 workers
	for _, c := range []struct {
		name          string
		current, seen int
		want          int
	}{
		{"just right", 4, 24, 4},
		{"within the tolerance", 10, 65, 10},
		{"one more", 4, 28, 5},
		{"no more than double", 10, 119, 20},
		{"four more when double is less", 1, 119, 5},
		{"no more than there may be", 15, 1000, 20},
		{"one by one down", 10, 6, 9},
		{"no fewer than there must be", 1, 0, 1},
	} {
		a := autoscaler{Scaling: s, seen: c.seen}
		if got := a.decide(0, c.current); got != c.want {
			t.Errorf("%s: with %d calls it makes %d of %d workers, want %d", c.name, c.seen, got, c.current, c.want)
		}
	}
}

func TestTheAutoscalerWaitsBeforeItGoesDown(t *testing.T) {
	a := autoscaler{Scaling: Chart(), seen: 60}
	a.decide(0, 10)
	a.seen = 6
	if got := a.decide(time.Minute, 10); got != 10 {
		t.Errorf("a minute after they were needed there are %d of 10 workers", got)
	}
	if got := a.decide(6*time.Minute, 10); got != 9 {
		t.Errorf("six minutes after they were needed there are %d workers, want 9", got)
	}
	if got := a.decide(6*time.Minute+15*time.Second, 9); got != 9 {
		t.Errorf("a second worker went %d s after the first", 15)
	}
}

// What the simulation calls the chart's settings is what the chart has.
func TestSettingsAreTheCharts(t *testing.T) {
	raw, err := os.ReadFile("../../../charts/toolfleet/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Worker struct {
			Slots int `json:"slots"`
			Keda  struct {
				MinReplicas          int `json:"minReplicas"`
				MaxReplicas          int `json:"maxReplicas"`
				CallsPerWorker       int `json:"callsPerWorker"`
				StabilizationSeconds int `json:"stabilizationSeconds"`
			} `json:"keda"`
		} `json:"worker"`
	}
	if err := yaml.Unmarshal(raw, &values); err != nil {
		t.Fatal(err)
	}
	w, want := values.Worker, Chart()
	if w.Keda.CallsPerWorker == 0 {
		w.Keda.CallsPerWorker = max(1, 3*w.Slots/4) // as the template does
	}
	got := want
	got.Slots, got.CallsPerWorker = w.Slots, w.Keda.CallsPerWorker
	got.MinWorkers, got.MaxWorkers = w.Keda.MinReplicas, w.Keda.MaxReplicas
	got.Stabilization = time.Duration(w.Keda.StabilizationSeconds) * time.Second
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the chart has other settings (-simulated +chart):\n%s", diff)
	}
}

// The page shows what the command prints.
func TestThePageShowsTheTable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := Print(&table, every()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/scaling.md shows another table than `make simulate` prints:\n%s", table.String())
	}
}
