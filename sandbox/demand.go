package sandbox

import (
	"math"
	"slices"
	"time"
)

const (
	// rateMemory is over how long the rate of Gets is weighted.
	rateMemory = time.Minute
	// firstRefill is what a refill is taken to last before one was seen.
	firstRefill = time.Second
)

// demand is what the calls of one spec ask for. How many of it have to be warm
// so that a call rarely finds none:
//
//   - A sandbox that was handed out is made good one refill later. So what a
//     shelf must hold is the number of Gets in the time of a refill: rate ×
//     refill time for a steady stream, and n for a burst of n.
//   - A container of cells comes back by itself. For those it is the number in
//     use at once.
//   - The highest count of the last few minutes stands, and then the highest of
//     what followed. So a burst finds the shelf as full as the burst before it
//     needed it, and calls that stop are forgotten.
//
// A mean in the highest count's place, weighted or not, would be fuller than
// needed between two bursts, and too empty in each; and since a call that finds
// the shelf empty makes its caller slower, it would take too small a shelf for
// a small demand.
type demand struct {
	gets   []time.Time   // in the time of a refill before the last Get
	refill time.Duration // exponentially weighted; 0 before one was seen
	rate   float64       // Gets per second at the last Get, exponentially weighted
	last   time.Time     // of the Gets
}

// get counts a Get. No more than most are told apart.
func (d *demand) get(now time.Time, most int) {
	d.rate = d.rateAt(now) + 1/rateMemory.Seconds()
	d.last = now
	if d.recent(now); len(d.gets) >= most {
		d.gets = slices.Delete(d.gets, 0, len(d.gets)-most+1)
	}
	d.gets = append(d.gets, now)
}

// rateAt is how many Gets there are in a second.
func (d *demand) rateAt(now time.Time) float64 {
	return d.rate * math.Exp(-now.Sub(d.last).Seconds()/rateMemory.Seconds())
}

// recent counts the Gets that cannot have been made good yet.
func (d *demand) recent(now time.Time) int {
	refill := d.refill
	if refill == 0 {
		refill = firstRefill
	}
	d.gets = slices.DeleteFunc(d.gets, func(t time.Time) bool { return now.Sub(t) > refill+quietGap })
	return len(d.gets)
}

// started takes in how long a start took.
func (d *demand) started(took time.Duration) {
	if d.refill == 0 {
		d.refill = took
		return
	}
	d.refill += (took - d.refill) / 4
}

// peaks tells the highest of the counts of the last one to two windows: two
// numbers in place of all that was counted.
type peaks struct {
	began     time.Time // of this window
	now, prev int       // the highest count of this window and the one before
}

func (k *peaks) note(now time.Time, count int, window time.Duration) {
	k.roll(now, window)
	k.now = max(k.now, count)
}

func (k *peaks) highest(now time.Time, window time.Duration) int {
	k.roll(now, window)
	return max(k.now, k.prev)
}

func (k *peaks) roll(now time.Time, window time.Duration) {
	switch past := now.Sub(k.began); {
	case past >= 2*window:
		k.began, k.prev, k.now = now, 0, 0
	case past >= window:
		k.began, k.prev, k.now = k.began.Add(window), k.now, 0
	}
}
