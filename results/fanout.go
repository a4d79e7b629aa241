package results

import (
	"context"
	"math"
	"slices"
	"sort"
	"sync"
	"time"
)

// The bounds of the memory of recent entries; whichever is met first.
const (
	recentEntries = 1024
	recentBytes   = 4 << 20
)

// recentCancels is how many cancels are remembered. A call that is older than
// the first of them is not [Log.Fresh].
const recentCancels = 256

// fanout hands the entries of the shared follower to whoever waits for them.
// It never blocks on a reader: each has a bounded buffer, and one whose buffer
// is full reads the rest from the stream.
type fanout struct {
	mu sync.Mutex
	// pos divides the stream: entries up to pos have been handed out, or were
	// there before the log was opened; every later one will be handed out.
	pos uint64
	// recent has every entry behind floor that was handed out. It spares a
	// follower that begins where the call was admitted, as nearly all do, any
	// question to the server.
	recent []Entry
	bytes  int
	floor  uint64

	followers map[Ref]map[*Follower]struct{}
	cancels   map[Ref]map[*cancelWatch]struct{}
	// lately has the newest cancels, for a watch that begins behind its own: all
	// since forgot, which is the server's time.
	lately  []cancelled
	forgot  time.Time
	waiters []waiter
	// ended are called with every result.
	ended map[*func(Ref)]struct{}
}

// cancelled is a cancel, and when it was appended.
type cancelled struct {
	ref Ref
	at  time.Time
}

// cancelWatch is closed once, when a cancel arrives.
type cancelWatch struct {
	ch   chan struct{}
	done bool
}

// tell closes the channel, once.
func (w *cancelWatch) tell() {
	if !w.done {
		w.done = true
		close(w.ch)
	}
}

// waiter waits for pos to reach seq.
type waiter struct {
	seq uint64
	ch  chan struct{}
}

// init begins behind pos, where the stream ended at a time of the server's. A
// fanout that is not handed every kind of entry has no memory but of cancels.
func (f *fanout) init(pos uint64, at time.Time, all bool) {
	f.pos, f.floor, f.forgot = pos, pos, at
	if !all {
		f.floor = math.MaxUint64
	}
	f.followers = map[Ref]map[*Follower]struct{}{}
	f.cancels = map[Ref]map[*cancelWatch]struct{}{}
}

// position is where the shared follower goes on.
func (f *fanout) position() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pos
}

// publish hands out one entry. Entries come in the order of the stream; one
// that was handed out before is dropped.
func (f *fanout) publish(e Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Seq <= f.pos {
		return
	}
	f.pos = e.Seq
	f.remember(e)
	for fl := range f.followers[e.ref] {
		fl.offer(e)
	}
	if e.Kind == KindCancel {
		if f.lately = append(f.lately, cancelled{e.ref, e.Time}); len(f.lately) > recentCancels {
			f.forgot, f.lately = f.lately[0].at, f.lately[1:]
		}
		for w := range f.cancels[e.ref] {
			w.tell()
		}
	}
	if e.Kind == KindResult {
		for tell := range f.ended {
			(*tell)(e.ref)
		}
	}
	f.wake()
}

// remember keeps e for those who come a little late. The caller holds mu.
func (f *fanout) remember(e Entry) {
	if f.floor == math.MaxUint64 {
		return
	}
	f.recent = append(f.recent, e)
	f.bytes += len(e.Data)
	for len(f.recent) > recentEntries || f.bytes > recentBytes {
		f.floor = f.recent[0].Seq
		f.bytes -= len(f.recent[0].Data)
		f.recent[0] = Entry{}
		f.recent = f.recent[1:]
	}
}

// wake lets go those who waited for a position that is reached. The caller
// holds mu.
func (f *fanout) wake() {
	kept := f.waiters[:0]
	for _, w := range f.waiters {
		if w.seq <= f.pos {
			close(w.ch)
		} else {
			kept = append(kept, w)
		}
	}
	clear(f.waiters[len(kept):])
	f.waiters = kept
}

// await returns when everything up to seq has been handed out, or ctx is done.
func (f *fanout) await(ctx context.Context, seq uint64) {
	f.mu.Lock()
	if f.pos >= seq {
		f.mu.Unlock()
		return
	}
	w := waiter{seq, make(chan struct{})}
	f.waiters = append(f.waiters, w)
	f.mu.Unlock()
	select {
	case <-w.ch:
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, other := range f.waiters {
			if other.ch == w.ch {
				f.waiters = append(f.waiters[:i], f.waiters[i+1:]...)
				return
			}
		}
	}
}

// join registers a follower. From then on it is handed every entry of its log
// behind the position returned; covered is true when it has been handed those
// before it, too.
func (f *fanout) join(fl *Follower) (pos uint64, covered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set := f.followers[fl.ref]
	if set == nil {
		set = map[*Follower]struct{}{}
		f.followers[fl.ref] = set
	}
	set[fl] = struct{}{}
	if fl.last <= f.floor {
		return f.pos, false
	}
	// Most begin close to the end, and all of it is in order.
	begin := sort.Search(len(f.recent), func(i int) bool { return f.recent[i].Seq >= fl.last })
	for i := range f.recent[begin:] {
		if e := &f.recent[begin+i]; e.ref == fl.ref {
			fl.offer(*e)
		}
	}
	return f.pos, true
}

// rejoin makes a follower that fell behind take entries again, and returns the
// position from which on it is handed every one.
func (f *fanout) rejoin(fl *Follower) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.behind = false
	return f.pos
}

func (f *fanout) leave(fl *Follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.followers[fl.ref], fl)
	if len(f.followers[fl.ref]) == 0 {
		delete(f.followers, fl.ref)
	}
}

// cancelsSince reports whether every cancel behind a time, by the server's clock,
// is remembered or will be handed out.
func (f *fanout) cancelsSince(at time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return at.After(f.forgot)
}

// Cancelled returns a channel that is closed when a cancel for ref arrives, or
// has arrived lately, and a function that ends the watch. Look after calling it
// unless the call is [Log.Fresh], so that no cancel falls between. The process
// must follow the kind "cancel".
func (l *Log) Cancelled(ref Ref) (ch <-chan struct{}, stop func()) {
	w := &cancelWatch{ch: make(chan struct{})}
	f := &l.fan
	f.mu.Lock()
	defer f.mu.Unlock()
	set := f.cancels[ref]
	if set == nil {
		set = map[*cancelWatch]struct{}{}
		f.cancels[ref] = set
	}
	set[w] = struct{}{}
	if slices.ContainsFunc(f.lately, func(c cancelled) bool { return c.ref == ref }) {
		w.tell()
	}
	return w.ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.cancels[ref], w)
		if len(f.cancels[ref]) == 0 {
			delete(f.cancels, ref)
		}
	}
}
