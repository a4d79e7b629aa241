package sandbox

import (
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// shelf is what is kept of one spec. The pool's mutex guards it.
type shelf struct {
	spec     Spec
	min, max int
	cost     int64 // of one that is idle, in bytes
	serial   int   // shelves are ordered by it

	warm     []kept // the next to be handed out first
	starting int    // refills on their way
	out      int    // with a call, or on their way to one
	demand   demand
	needed   peaks // how many had to be warm, see demand
	busy     peaks // how many were out at once; for cells
	places   int   // how many may be kept, see Pool.allot

	lacking   time.Time // since when there are too few; zero when there are not
	retry     *backoff.ExponentialBackOff
	notBefore time.Time // of the next refill, after one that failed
	fault     string    // why the last refill failed, without its sandbox's id; "" when it did not
}

// kept is a sandbox on a shelf.
type kept struct {
	*Sandbox
	answered time.Time // when its agent was last heard
}

func newShelf(spec Spec, cost int64, serial int) *shelf {
	retry := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(time.Second),
		backoff.WithMaxInterval(time.Minute),
		backoff.WithMaxElapsedTime(0), // never gives up
	)
	return &shelf{spec: spec, cost: cost, serial: serial, retry: retry}
}

// cells says that sandboxes come back after a call.
func (sh *shelf) cells() bool { return sh.spec.Isolation == "cell" }

// have counts what is there or will be soon without anybody's doing.
func (sh *shelf) have() int { return len(sh.warm) + sh.starting }

// get counts a Get, whose sandbox is among those that are out already.
func (sh *shelf) get(now time.Time, window time.Duration) {
	sh.demand.get(now, max(1, sh.max))
	count := sh.demand.recent(now)
	if sh.cells() {
		count = sh.out
		sh.busy.note(now, count, surplusTime)
	}
	sh.needed.note(now, count, window)
}

// target is how many there should be. Of cells, those with a call count too.
func (sh *shelf) target(now time.Time, window time.Duration) int {
	return min(max(sh.needed.highest(now, window), sh.min), sh.max)
}

// surplusTime is how long cells above max are kept after there were as many in
// use; at most twice that.
const surplusTime = 5 * time.Second

// ceiling is how many may wait on the shelf. A worker that runs more calls at
// once than max goes on with the containers it has: they come back together as
// it happens, and starting what was just removed costs as much as fifty calls.
func (sh *shelf) ceiling(now time.Time, window time.Duration) int {
	n := sh.target(now, window)
	if sh.cells() && sh.max > 0 {
		return max(n, sh.busy.highest(now, surplusTime)-sh.out)
	}
	return n
}

// lack is how many refills are missing.
func (sh *shelf) lack(now time.Time, window time.Duration) int {
	n := sh.target(now, window)
	if sh.cells() {
		n -= sh.out
	}
	return min(n, sh.places) - sh.have()
}

// forgotten says that nobody wants the spec and nothing of it is left to count.
func (sh *shelf) forgotten() bool { return sh.max == 0 && sh.have() == 0 && sh.out == 0 }

// take removes the first one. ok is false when there is none.
func (sh *shelf) take() (k kept, ok bool) {
	if len(sh.warm) == 0 {
		return kept{}, false
	}
	k = sh.warm[0]
	sh.warm[0] = kept{}
	sh.warm = sh.warm[1:]
	return k, true
}

// putBack puts one that has served a call where the next call takes it from:
// its pages and its caches are warm in the other sense too.
func (sh *shelf) putBack(sb *Sandbox, now time.Time) {
	sh.warm = slices.Insert(sh.warm, 0, kept{sb, now})
}

// cut removes from the far end until n are left.
func (sh *shelf) cut(n int) []*Sandbox {
	var gone []*Sandbox
	for len(sh.warm) > max(n, 0) {
		last := len(sh.warm) - 1
		gone = append(gone, sh.warm[last].Sandbox)
		sh.warm[last] = kept{}
		sh.warm = sh.warm[:last]
	}
	return gone
}
