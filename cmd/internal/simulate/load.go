package simulate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Stream is one tenant's calls.
type Stream struct {
	Tenant string
	// Rate is calls a second between From and Until, at random moments (a Poisson
	// process).
	Rate        float64
	From, Until time.Duration
	// AtOnce is how many calls come at From in one instant, beside those.
	AtOnce int
}

// Load is what comes to a fleet.
type Load struct {
	Name    string
	Streams []Stream
	// Service is how long a call takes in the mean; how long each takes is
	// exponentially distributed, so some take many times as long.
	Service time.Duration
	// Before is how many calls the fleet had before the first of these, to which
	// its number of workers is fit.
	Before int
}

// arrival is one call.
type arrival struct {
	at, service time.Duration
	tenant      string
}

// arrivals are all calls of a load in the order in which they come.
func (l Load) arrivals(random *rand.Rand) []arrival {
	var all []arrival
	add := func(s Stream, at time.Duration) {
		all = append(all, arrival{at, exponential(random, l.Service), s.Tenant})
	}
	for _, s := range l.Streams {
		for range s.AtOnce {
			add(s, s.From)
		}
		if s.Rate <= 0 {
			continue
		}
		gap := time.Duration(float64(time.Second) / s.Rate)
		for at := s.From + exponential(random, gap); at < s.Until; at += exponential(random, gap) {
			add(s, at)
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

func exponential(random *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(random.ExpFloat64() * float64(mean))
}

// Length is how long the loads below go on.
const Length = time.Hour

// Heavy is the tenant that has the most calls of its load, where one has.
const Heavy = "heavy"

// Steady is 12 calls a second of two seconds each: 24 slots, or three workers of
// eight, at work all the time.
func Steady() Load {
	return Load{Name: "steady", Service: 2 * time.Second, Before: 24, Streams: []Stream{{Tenant: "one", Rate: 12, Until: Length}}}
}

// Morning is the same after a night without calls.
func Morning() Load {
	l := Steady()
	l.Name, l.Before = "morning", 0
	return l
}

// Burst is the same with five times as many calls for five minutes.
func Burst() Load {
	l := Steady()
	l.Name = "burst"
	l.Streams = append(l.Streams, Stream{Tenant: "one", Rate: 48, From: 10 * time.Minute, Until: 15 * time.Minute})
	return l
}

// OneHeavy is ten small tenants, each with a call in two seconds, beside one that
// makes 5,000 calls at once.
func OneHeavy() Load {
	l := Load{Name: "one heavy tenant", Service: 2 * time.Second, Before: 10}
	for n := range 10 {
		l.Streams = append(l.Streams, Stream{Tenant: fmt.Sprintf("small-%d", n), Rate: 0.5, Until: Length})
	}
	l.Streams = append(l.Streams, Stream{Tenant: Heavy, From: 10 * time.Minute, AtOnce: 5000})
	return l
}
