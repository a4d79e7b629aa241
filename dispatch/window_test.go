package dispatch

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWindow holds the window to a list of moments: it never says that fewer
// happened within the last minute than did, counts none for longer than a
// second more, and when it promises room there is room, and not a second before.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		var moments []time.Time
		now := time.Unix(1_000_000, 0)
		within := func(age time.Duration) (n int) {
			for _, m := range moments {
				if now.Sub(m) < age {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				at := now.Add(-time.Duration(rapid.IntRange(0, 90_000).Draw(t, "age")) * time.Millisecond)
				w.add(at, now)
				moments = append(moments, at)
			},
			"pass": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 70_000).Draw(t, "ms")) * time.Millisecond)
			},
			"room": func(t *rapid.T) {
				limit := rapid.IntRange(1, 5).Draw(t, "limit")
				wait := w.room(limit, now)
				if later := w; later.count(now.Add(wait)) >= limit {
					t.Fatalf("after %s there are %d, and the limit is %d", wait, later.total, limit)
				}
				if earlier := w; wait > 0 && earlier.count(now.Add(wait-time.Second)) < limit {
					t.Fatalf("there is room before %s", wait)
				}
			},
			"": func(t *rapid.T) {
				if n := w.count(now); n < within(time.Minute) || n > within(time.Minute+time.Second) {
					t.Fatalf("%d are counted of %d to %d", n, within(time.Minute), within(time.Minute+time.Second))
				}
			},
		})
	})
}

func TestWindowOfAClockThatWasSetBack(t *testing.T) {
	var w window
	now := time.Unix(1_000_000, 0)
	w.add(now, now)
	if n := w.count(now.Add(-time.Hour)); n != 0 {
		t.Errorf("an hour before, %d are counted", n)
	}
}
