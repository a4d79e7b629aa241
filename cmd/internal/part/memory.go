package part

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryEvery is how often it is seen whether memory can be given back.
	memoryEvery = 5 * time.Second
	// quiet is how many bytes are made in that time by a process that has
	// little to do: heartbeats, and a keeper that looks at what waits.
	quiet = 16 << 20
	// worthIt is how many bytes must have been made since memory was given back
	// for it to be done again: it costs three collections.
	worthIt = 64 << 20
	// calm is how many quiet looks one behind another are the end of a burst:
	// the embedded server holds what was written last for 10 seconds.
	calm = 3
)

// giveBackMemory gives memory back to the system once a burst of work is over,
// until ctx is done.
//
// The runtime does not by itself: it lets garbage grow as large as what is in
// use, collects when more is made and not when less is, and keeps what it freed
// for the next time. Behind a hundred thousand calls that came in a minute and
// now wait that is more than the calls themselves. A smaller GOGC would give it
// back too, and take the time when there is work to do.
func giveBackMemory(ctx context.Context) error {
	ticker := time.NewTicker(memoryEvery)
	defer ticker.Stop()
	var m memory
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if m.due(allocated()) {
			// A buffer of the embedded server goes from its cache to a pool in
			// the first collection, and out of the pool in two more.
			runtime.GC()
			runtime.GC()
			debug.FreeOSMemory()
		}
	}
}

// memory is how many bytes had been made at the last look and when memory was
// last given back, and how many looks have been quiet.
type memory struct {
	looked, gaveBack uint64
	quiet            int
}

// due reports whether to give memory back, when so many bytes have been made in
// all.
func (m *memory) due(made uint64) bool {
	lately := made - m.looked
	m.looked = made
	m.quiet++
	if lately > quiet {
		m.quiet = 0
	}
	if m.quiet < calm || made-m.gaveBack < worthIt {
		return false
	}
	m.gaveBack = made
	return true
}

// allocated is how many bytes this process has made in all.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
