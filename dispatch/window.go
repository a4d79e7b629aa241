package dispatch

import "time"

// windowSeconds is what a window remembers: a minute, and the second that is
// under way.
const windowSeconds = 61

// window counts what happened within the last minute, by seconds. What happened
// counts for a minute at least and a second more at most, so no minute holds
// more than was allowed. A list of moments would be exact, and as long as a
// quota is large. The zero window is empty.
type window struct {
	counts [windowSeconds]uint32
	total  int
	head   int64 // the newest second, Unix
}

// turn moves on to now. A clock that was set back by more than the window holds
// begins anew.
func (w *window) turn(now time.Time) {
	sec := now.Unix()
	if sec-w.head >= windowSeconds || w.head-sec >= windowSeconds {
		*w = window{head: sec}
		return
	}
	for w.head < sec {
		w.head++
		oldest := &w.counts[w.head%windowSeconds]
		w.total -= int(*oldest)
		*oldest = 0
	}
}

// add counts one that happened at a moment, unless that is too long ago.
func (w *window) add(at, now time.Time) {
	w.turn(now)
	sec := min(at.Unix(), w.head)
	if w.head-sec >= windowSeconds {
		return
	}
	w.counts[sec%windowSeconds]++
	w.total++
}

// count is how many happened within the last minute.
func (w *window) count(now time.Time) int {
	w.turn(now)
	return w.total
}

// room is how long it takes until fewer than limit are left in the window, when
// none is added; whole seconds, 0 when it is so now.
func (w *window) room(limit int, now time.Time) time.Duration {
	w.turn(now)
	left := w.total
	for sec := w.head - windowSeconds + 1; left >= limit && sec <= w.head; sec++ {
		if left -= int(w.counts[sec%windowSeconds]); left < limit {
			return time.Duration(sec+windowSeconds-w.head) * time.Second
		}
	}
	return 0
}
