package results

import (
	"container/heap"
	"context"
	"time"
)

// dueAgain is when a call that was handed out is due again by itself: whoever
// had it in hand may have been kept from it.
const dueAgain = 30 * time.Second

// Due hands out the calls of all tenants without a result that became due for a
// look before a time, the longest due first, and at most n of them. A call is
// due from its admission on, and after a look when [Log.Later] says so, or half
// a minute later. Like [Log.List] it needs Run and waits for the history.
//
// It costs what it hands out, however many calls wait.
func (l *Log) Due(ctx context.Context, before time.Time, n int) ([]Unfinished, error) {
	if err := l.indexReady(ctx); err != nil {
		return nil, err
	}
	x := &l.index
	x.mu.Lock()
	defer x.mu.Unlock()
	var calls []Unfinished
	for len(x.due) > 0 && len(calls) < n && x.due[0].due < before.UnixNano() {
		calls = append(calls, x.due[0].unfinished())
		x.dueAt(x.due[0], before.Add(dueAgain).UnixNano())
	}
	return calls, nil
}

// Later makes a call due again at a time, and notes a pause for
// [Unfinished.Pause]. A call that has ended is due no more.
func (l *Log) Later(ref Ref, at time.Time, pause time.Duration) {
	x := &l.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if r := x.find(ref); r != nil && r.place > 0 {
		r.pause = int32(pause.Milliseconds()) //nolint:gosec // days at most
		x.dueAt(r, at.UnixNano())
	}
}

// dueAt puts a record in its place among the due ones. The caller holds mu.
func (x *index) dueAt(r *record, at int64) {
	r.due = at
	if r.place > 0 {
		heap.Fix(&x.due, int(r.place-1))
	} else {
		heap.Push(&x.due, r)
	}
}

// undue takes a record out of the due ones. The caller holds mu.
func (x *index) undue(r *record) {
	if r.place > 0 {
		heap.Remove(&x.due, int(r.place-1))
	}
}

// dueHeap are records by when they are due, each of which knows its place.
type dueHeap []*record

func (h dueHeap) Len() int { return len(h) }

// Less puts the older call first when two are due at the same time.
func (h dueHeap) Less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].seq < h[j].seq
}

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = int32(i+1), int32(j+1) //nolint:gosec // a number of calls
}

// Push implements [heap.Interface].
func (h *dueHeap) Push(v any) {
	r := v.(*record) //nolint:forcetypeassert // ours
	*h = append(*h, r)
	r.place = int32(len(*h)) //nolint:gosec // a number of calls
}

// Pop implements [heap.Interface].
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	r.place = 0
	return r
}
