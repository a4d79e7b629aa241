package sandbox

import (
	"time"

	"golang.org/x/sys/unix"
)

// defaultIdleMemory is what an idle sandbox costs unless PoolConfig says
// otherwise, in bytes: its agent, and its share of the shim.
const defaultIdleMemory = 12 << 20

// machineMemory is the memory of the machine, in bytes. The cgroup that the
// process is in says nothing: sandboxes have theirs elsewhere.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 4 << 30
	}
	return int64(uint64(info.Totalram) * uint64(info.Unit)) //nolint:gosec,unconvert // no machine has 8 EiB; Totalram is 32 bits on some
}

// room is what the pool may still hold.
type room struct {
	places int
	memory int64
}

func (r room) fits(sh *shelf) bool { return r.places > 0 && r.memory >= sh.cost }

// less is the room beside n sandboxes of sh.
func (r room) less(sh *shelf, n int) room {
	return room{r.places - n, r.memory - int64(n)*sh.cost}
}

func (p *Pool) allRoom() room { return room{p.cfg.MaxWarm, p.cfg.MaxMemory} }

// roomLeft is the room beside all that is warm or starting.
func (p *Pool) roomLeft() room {
	r := p.allRoom()
	for _, sh := range p.shelves {
		r = r.less(sh, sh.have())
	}
	return r
}

// allot gives every shelf its places: its ceiling, when there is room for all.
// When there is not, they are given one by one to the neediest.
func (p *Pool) allot(now time.Time) {
	r := p.allRoom()
	for _, sh := range p.shelves {
		sh.places = sh.ceiling(now, p.window())
		r = r.less(sh, sh.places)
	}
	if r.places < 0 || r.memory < 0 {
		p.ration(now)
	}
}

// ration gives the room away place by place.
func (p *Pool) ration(now time.Time) {
	wishes := make(map[*shelf]int, len(p.shelves))
	for _, sh := range p.shelves {
		if sh.places > 0 {
			wishes[sh] = sh.places
		}
		sh.places = 0
	}
	for r := p.allRoom(); len(wishes) > 0; {
		neediest := neediest(wishes, now)
		if !r.fits(neediest) {
			delete(wishes, neediest) // others may be smaller
			continue
		}
		r = r.less(neediest, 1)
		if neediest.places++; neediest.places == wishes[neediest] {
			delete(wishes, neediest)
		}
	}
}

// neediest is the shelf whose next place would be used most often. Whoever has
// less than its min comes before all others, and of shelves alike the older one.
func neediest(wishes map[*shelf]int, now time.Time) *shelf {
	var best *shelf
	for sh := range wishes {
		if best == nil || needier(sh, best, now) {
			best = sh
		}
	}
	return best
}

func needier(a, b *shelf, now time.Time) bool {
	if low := a.places < a.min; low != (b.places < b.min) {
		return low
	}
	if ua, ub := a.use(now), b.use(now); ua != ub {
		return ua > ub
	}
	return a.serial < b.serial
}

// use is how often the next place would be used, in calls a second. A place
// whose sandbox is there already counts double: two specs whose calls come
// about equally often shall not take it from each other in turns.
func (sh *shelf) use(now time.Time) float64 {
	const never = 1e-9 // so that shelves without any calls share alike
	use := (sh.demand.rateAt(now) + never) / float64(sh.places+1)
	if sh.places < sh.have() {
		use *= 2
	}
	return use
}
