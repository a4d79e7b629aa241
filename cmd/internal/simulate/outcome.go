package simulate

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// sampleEvery is how often the number of workers is written down.
const sampleEvery = 5 * time.Minute

// Outcome is what came of a load.
type Outcome struct {
	Load    string
	Scaling string
	// Took is the time until everything was served, an hour at least.
	Took time.Duration
	// Arrived and Served count calls; they are the same, or the simulation is
	// wrong.
	Arrived, Served int
	// Waits are how long calls waited for their start, shortest first: all calls,
	// and those of all tenants but [Heavy].
	Waits, SmallWaits []time.Duration
	// Workers is how many there were every five minutes, those that start and
	// those that drain among them.
	Workers []int
	// Starts is how many workers were started.
	Starts int
	// Idle is the slot-seconds that were there, from the start of each worker on,
	// and that no call used; Used are those that calls used.
	Idle, Used time.Duration
	// Waiting is the call-seconds that were waited, counted by how many calls
	// waited from event to event.
	Waiting time.Duration
}

// tally is what is counted while time passes.
type tally struct {
	served, starts      int
	workers             []int
	idle, used, waiting time.Duration
}

// pass lets time pass over a fleet in which nothing happens meanwhile.
func (t *tally) pass(f *fleet, d time.Duration) {
	busy := 0
	for _, w := range f.workers {
		busy += w.busy
	}
	t.used += time.Duration(busy) * d
	t.idle += time.Duration(len(f.workers)*f.Slots-busy) * d
	t.waiting += time.Duration(f.waiting) * d
}

func (t *tally) outcome(l Load, s Scaling, calls []arrival, waits []time.Duration, took time.Duration) Outcome {
	o := Outcome{
		Load: l.Name, Scaling: s.Name, Took: took, Arrived: len(calls), Served: t.served, Workers: t.workers,
		Starts: t.starts, Idle: t.idle, Used: t.used, Waiting: t.waiting,
	}
	for i, c := range calls {
		o.Waits = append(o.Waits, waits[i])
		if c.tenant != Heavy {
			o.SmallWaits = append(o.SmallWaits, waits[i])
		}
	}
	slices.Sort(o.Waits)
	slices.Sort(o.SmallWaits)
	return o
}

// Quantile is the wait that the part q of waits is not above. Without waits it is
// 0.
func Quantile(waits []time.Duration, q float64) time.Duration {
	if len(waits) == 0 {
		return 0
	}
	return waits[min(int(q*float64(len(waits))), len(waits)-1)]
}

// Print writes outcomes as a table.
func Print(w io.Writer, outcomes []Outcome) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "load\tscaling\twait p50\tp99\tmax\tsmall p99\tidle\tstarts\tworkers, every 5 minutes")
	for _, o := range outcomes {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%.0f %%\t%d\t%s\n", o.Load, o.Scaling,
			seconds(Quantile(o.Waits, 0.5)), seconds(Quantile(o.Waits, 0.99)), seconds(Quantile(o.Waits, 1)),
			seconds(Quantile(o.SmallWaits, 0.99)), 100*float64(o.Idle)/float64(o.Idle+o.Used), o.Starts,
			strings.Trim(fmt.Sprint(o.Workers), "[]"))
	}
	return table.Flush()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// Settings are the ways to scale that are compared: the chart's, and the chart's
// with one thing changed.
func Settings() []Scaling {
	with := func(name string, change func(*Scaling)) Scaling {
		s := Chart()
		s.Name = name
		change(&s)
		return s
	}
	return []Scaling{
		Chart(),
		with("callsPerWorker 8", func(s *Scaling) { s.CallsPerWorker = 8 }),
		with("callsPerWorker 4", func(s *Scaling) { s.CallsPerWorker = 4 }),
		with("minReplicas 4", func(s *Scaling) { s.MinWorkers = 4 }),
		with("stabilization 1 min", func(s *Scaling) { s.Stabilization = time.Minute }),
		with("stabilization 15 min", func(s *Scaling) { s.Stabilization = 15 * time.Minute }),
		with("pods start in 3 min", func(s *Scaling) { s.StartFrom, s.StartTo = 3*time.Minute, 3*time.Minute }),
		with("4 workers, no scaling", func(s *Scaling) { s.MinWorkers, s.MaxWorkers = 4, 4 }),
	}
}

// Loads are the loads that they are compared under.
func Loads() []Load { return []Load{Steady(), Morning(), Burst(), OneHeavy()} }
