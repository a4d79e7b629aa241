package simulate

import "time"

// Scaling is how many workers there are, and by which rule: what `worker.slots`
// and `worker.keda` in the chart's values say.
type Scaling struct {
	Name string
	// Slots is how many calls a worker runs at once.
	Slots int
	// CallsPerWorker is how many calls, waiting or with workers, one worker is
	// reckoned to have. Fewer than slots is headroom.
	CallsPerWorker int
	// MinWorkers and MaxWorkers bound it; when they are the same nothing scales.
	MinWorkers, MaxWorkers int
	// Stabilization is for how long fewer workers must have been enough.
	Stabilization time.Duration
	// StartFrom and StartTo are how long a worker takes from the decision to its
	// first call; each takes a time between the two.
	StartFrom, StartTo time.Duration
}

// Chart is what the chart has by default, with pods that start in 20 to 60 s.
func Chart() Scaling {
	return Scaling{
		Name: "chart", Slots: 8, CallsPerWorker: 6, MinWorkers: 1, MaxWorkers: 20,
		Stabilization: 5 * time.Minute, StartFrom: 20 * time.Second, StartTo: time.Minute,
	}
}

const (
	// scrapeEvery is Prometheus' interval in the chart's ServiceMonitor: how old
	// the number of calls may be that the autoscaler sees.
	scrapeEvery = 30 * time.Second
	// syncEvery is how often the HorizontalPodAutoscaler decides, by default.
	syncEvery = 15 * time.Second
	// tolerance is how far the number of calls may be from what the workers are
	// reckoned to have, and nothing is changed.
	tolerance = 0.1
	// downEvery is how often one worker may go.
	downEvery = time.Minute
)

// autoscaler is a HorizontalPodAutoscaler with the behaviour that the chart gives
// it. Its time is the simulation's.
type autoscaler struct {
	Scaling
	seen     int // calls at the last scrape
	advice   []advice
	lastDown time.Duration
	everDown bool
}

// advice is what the number of calls asked for at one moment.
type advice struct {
	at      time.Duration
	workers int
}

// decide says how many workers there shall be, of which there are current now.
func (a *autoscaler) decide(now time.Duration, current int) int {
	wanted := a.wanted(current)
	a.advice = append(a.advice, advice{now, wanted})
	for len(a.advice) > 1 && a.advice[0].at < now-a.Stabilization {
		a.advice = a.advice[1:]
	}
	switch {
	case wanted > current:
		// Kubernetes' own bound on growth: double, or four more, in 15 seconds.
		return min(wanted, max(2*current, current+4))
	case wanted < current:
		for _, old := range a.advice {
			wanted = max(wanted, old.workers)
		}
		if wanted < current && (!a.everDown || now-a.lastDown >= downEvery) {
			a.lastDown, a.everDown = now, true
			return current - 1
		}
	}
	return current
}

// wanted is what the calls that were last seen ask for.
func (a *autoscaler) wanted(current int) int {
	usual := float64(current * a.CallsPerWorker)
	if usual > 0 && abs(float64(a.seen)/usual-1) <= tolerance {
		return current
	}
	return min(max((a.seen+a.CallsPerWorker-1)/a.CallsPerWorker, a.MinWorkers), a.MaxWorkers)
}

func abs(x float64) float64 { return max(x, -x) }
