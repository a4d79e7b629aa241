package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// kind is a kind of fault, named as in the report.
type kind string

// The kinds of fault.
const (
	workerKill     kind = "worker_kills"
	dispatcherKill kind = "dispatcher_kills"
	natsKill       kind = "nats_kills"
	containerdKill kind = "containerd_kills"
	shimKill       kind = "shim_kills"
	stop           kind = "stops"
	partition      kind = "partitions"
	diskFull       kind = "disk_full"
)

// menu says how many faults of each kind a run of menuCalls has, among how many
// targets, and how long one lasts: from when a process is killed until it is
// started again, or from the fault to its mending. Lengths in leases are
// multiples of [lease].
var menu = []struct {
	kind     kind
	n        int
	targets  int
	from, to time.Duration
}{
	{workerKill, 20, workers, 200 * time.Millisecond, 4 * time.Second},
	{dispatcherKill, 10, dispatchers, 200 * time.Millisecond, 3 * time.Second},
	{natsKill, 10, servers, 500 * time.Millisecond, 5 * time.Second},
	{containerdKill, 6, workers, 0, 0}, // its worker starts it again
	{shimKill, 8, workers, 0, 0},
	{stop, 5, workers, lease * 3 / 2, lease * 5 / 2},
	{partition, 3, 1, lease / 2, lease * 5 / 2},
	{diskFull, 2, 1, 4 * time.Second, 8 * time.Second},
}

const menuCalls = 2000

// The parts of the fleet.
const (
	servers     = 3
	dispatchers = 2
	workers     = 3
)

// fault is one thing that is done to the fleet.
type fault struct {
	at     time.Duration
	kind   kind
	target int
	length time.Duration
}

// String says what is done to which part, in the names of the logs.
func (f fault) String() string {
	part := fmt.Sprintf("w%d", f.target)
	switch f.kind {
	case dispatcherKill:
		part = fmt.Sprintf("d%d", f.target)
	case natsKill, diskFull:
		part = fmt.Sprintf("nats%d", f.target)
	case partition:
		part = fmt.Sprintf("w%d", cutOff)
	}
	text := fmt.Sprintf("%6.1fs %s %s", f.at.Seconds(), f.kind, part)
	if f.length > 0 {
		text += fmt.Sprintf(" for %.1fs", f.length.Seconds())
	}
	return text
}

// span is how long calls are made: at least as long as it takes for one fault
// of each kind to do its worst.
func span(calls int) time.Duration {
	return max(45*time.Second, time.Duration(calls)*300*time.Millisecond)
}

// schedule draws the faults of a run, in the order of their times. They are as
// many as the number of calls asks for, and at least one of each kind. Their
// order is drawn, and each falls somewhere into its equal share of the time, so
// that neighbours overlap and no run has all its faults at once.
func schedule(seed uint64, calls int) []fault {
	draw := rand.New(rand.NewPCG(seed, 1))
	var faults []fault
	for _, m := range menu {
		n := max(1, (m.n*calls+menuCalls-1)/menuCalls)
		for range n {
			f := fault{kind: m.kind, target: draw.IntN(m.targets), length: m.from}
			if m.to > m.from {
				f.length += time.Duration(draw.Int64N(int64(m.to - m.from)))
			}
			faults = append(faults, f)
		}
	}
	draw.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	share := span(calls) / time.Duration(len(faults))
	for i := range faults {
		faults[i].at = time.Duration(i)*share + time.Duration(draw.Int64N(int64(share)))
	}
	return faults
}
