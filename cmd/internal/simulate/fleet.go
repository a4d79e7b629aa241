package simulate

import (
	"cmp"
	"container/heap"
	"encoding/base32"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/keeper"
	"github.com/toolfleet/toolfleet/queue"
)

// event is something that happens at a time; of two at the same time the one that
// was planned first comes first.
type event struct {
	at time.Duration
	n  int
	do func()
}

// events is a heap of those to come.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].n, e[j].n)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// worker is one that was asked for.
type worker struct {
	running bool // it takes calls; before that it starts
	leaving bool
	busy    int
}

// fleet is the state of a simulation.
type fleet struct {
	Scaling
	random *rand.Rand
	now    time.Duration
	plan   events
	n      int

	calls   []arrival
	waits   []time.Duration // by call; what has not started has none
	policy  *keeper.Policy
	ready   []int // calls in READY, in the order in which they came there
	workers []*worker
	scaler  autoscaler
	open    int // calls that came and have not ended
	waiting int // of these, those that have not started

	tally tally
}

// Run lets a load meet a fleet from its first call until all are served and the
// load's hour is over.
func Run(l Load, s Scaling, seed uint64) Outcome {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it has to be the same each time, not secret
	calls := l.arrivals(random)
	f := &fleet{
		Scaling: s, random: random, calls: calls, waits: make([]time.Duration, len(calls)),
		policy: keeper.NewPolicy(nil), scaler: autoscaler{Scaling: s},
	}
	f.scaler.seen = l.Before
	for range f.scaler.wanted(0) {
		f.workers = append(f.workers, &worker{running: true})
	}
	f.slots()
	for i, c := range calls {
		f.at(c.at, func() { f.arrive(i) })
	}
	f.every(scrapeEvery, func() { f.scaler.seen = f.open })
	f.every(syncEvery, f.scale)
	f.every(sampleEvery, func() { f.tally.workers = append(f.tally.workers, len(f.workers)) })
	for f.now < Length || f.tally.served < len(calls) {
		e := heap.Pop(&f.plan).(event)
		f.tally.pass(f, e.at-f.now)
		f.now = e.at
		e.do()
	}
	return f.tally.outcome(l, s, calls, f.waits, f.now)
}

// at plans an event.
func (f *fleet) at(t time.Duration, do func()) {
	f.n++
	heap.Push(&f.plan, event{t, f.n, do})
}

// every plans an event that comes again and again.
func (f *fleet) every(d time.Duration, do func()) {
	f.at(f.now+d, func() {
		do()
		f.every(d, do)
	})
}

// arrive takes a call. Nothing has the sequence number 0.
func (f *fleet) arrive(i int) {
	f.open++
	f.waiting++
	c := f.calls[i]
	f.policy.Wait(queue.Waiting{
		Address: queue.Address{Class: queue.DefaultClass, Priority: call.PriorityInteractive, Tenant: c.tenant, Tool: "tool", Key: keyOf(i)},
		Seq:     uint64(i) + 1, Since: clock(f.now),
	})
	f.settle()
}

// end is a call's.
func (f *fleet) end(i int, w *worker) {
	f.open--
	f.tally.served++
	w.busy--
	f.policy.End(keyOf(i))
	if w.leaving && w.busy == 0 {
		f.workers = slices.DeleteFunc(f.workers, func(o *worker) bool { return o == w })
	}
	f.slots()
	f.settle()
}

// settle moves what may run to READY, and from there to slots that are free.
func (f *fleet) settle() {
	for {
		seq, ok := f.policy.Next(queue.DefaultClass, clock(f.now))
		if !ok {
			break
		}
		f.ready = append(f.ready, int(seq-1)) //nolint:gosec // it was made of an int
	}
	for len(f.ready) > 0 {
		w := f.free()
		if w == nil {
			return
		}
		i := f.ready[0]
		f.ready = f.ready[1:]
		w.busy++
		f.waiting--
		f.waits[i] = f.now - f.calls[i].at
		f.at(f.now+f.calls[i].service, func() { f.end(i, w) })
	}
}

// free is the worker that is the least busy of those that have a free slot. In a
// fleet it is the slot that has waited longest, which is mostly one of its.
func (f *fleet) free() (found *worker) {
	for _, w := range f.workers {
		if w.running && !w.leaving && w.busy < f.Slots && (found == nil || w.busy < found.busy) {
			found = w
		}
	}
	return found
}

// slots tells the policy what it is told in a fleet: deliveries that are out, and
// pulls that wait.
func (f *fleet) slots() {
	n := 0
	for _, w := range f.workers {
		switch {
		case w.leaving:
			n += w.busy
		case w.running:
			n += f.Slots
		}
	}
	f.policy.Slots(queue.DefaultClass, n)
}

// scale does what the autoscaler says.
func (f *fleet) scale() {
	var staying []*worker
	for _, w := range f.workers {
		if !w.leaving {
			staying = append(staying, w)
		}
	}
	switch wanted := f.scaler.decide(f.now, len(staying)); {
	case wanted > len(staying):
		for range wanted - len(staying) {
			f.begin()
		}
	case wanted < len(staying):
		f.leave(staying)
	}
}

// begin starts a worker.
func (f *fleet) begin() {
	w := &worker{}
	f.workers = append(f.workers, w)
	f.tally.starts++
	takes := f.StartFrom
	if spread := f.StartTo - f.StartFrom; spread > 0 {
		takes += time.Duration(f.random.Int64N(int64(spread)))
	}
	f.at(f.now+takes, func() {
		w.running = true
		f.slots()
		f.settle()
	})
}

// leave tells the worker that came last to go, a starting one before those that
// run; it drains.
func (f *fleet) leave(staying []*worker) {
	w := staying[len(staying)-1]
	for _, s := range staying {
		if !s.running {
			w = s
		}
	}
	w.leaving = true
	if w.busy == 0 {
		f.workers = slices.DeleteFunc(f.workers, func(o *worker) bool { return o == w })
	}
	f.slots()
}

// keyOf is a key for a call, of the shape that keys have.
func keyOf(i int) call.Key {
	var raw [17]byte
	binary.BigEndian.PutUint64(raw[:], uint64(i)) //nolint:gosec // an index
	return call.Key(strings.ToLower(base32.StdEncoding.EncodeToString(raw[:])[:26]))
}

// clock is a moment of the simulation as the policy knows time.
func clock(d time.Duration) time.Time { return time.Unix(0, 0).Add(d) }
