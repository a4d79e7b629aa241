package results

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// defaultIndexLimit is how many calls the index remembers.
const defaultIndexLimit = 100_000

// indexed are the kinds that the index reads. Results come first: what has
// ended by then takes the least room when its admission is read.
var indexed = [...]string{KindResult, KindAdmit, KindClaim, KindStart, KindCancel}

// index is the list of calls, in memory: about 200 bytes a call, and its ids. It
// holds every call that has not ended, and of those that have the newest, up to
// the limit in all; the log itself knows the rest. It is fed by the shared
// follower and, once, by the history, in any order: each entry says something
// that holds whatever else is known.
//
// What is done for each entry costs the same however many calls there are.
type index struct {
	mu    sync.Mutex
	limit int
	calls map[key]*record
	// order has the admitted ones by sequence, oldest first, of which so many
	// have ended.
	order []*record
	ended int
	// due has the admitted ones that have not ended.
	due dueHeap

	loaded chan struct{} // closed by loadedAll

	observer Observer // nil for none
}

func (x *index) init(limit int) {
	x.limit = limit
	x.calls = map[key]*record{}
	x.loaded = make(chan struct{})
}

func (x *index) isLoaded() bool {
	select {
	case <-x.loaded:
		return true
	default:
		return false
	}
}

// loadedAll says that the history has been read. What is known of calls whose
// admission is gone by age is forgotten.
func (x *index) loadedAll() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.isLoaded() {
		return // by another Run
	}
	for k, r := range x.calls {
		if r.seq == 0 {
			delete(x.calls, k)
		}
	}
	close(x.loaded)
}

// take notes what an entry says. An entry that cannot be read is passed over:
// the index is a convenience, the log is the truth.
func (x *index) take(e Entry) {
	if !slices.Contains(indexed[:], e.Kind) {
		return
	}
	k, ok := pack(e.ref.Key)
	if !ok {
		return
	}
	note, err := read(e)
	if err != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.calls[k]
	if r == nil {
		r = &record{key: k, tenant: nameOf(e.ref.Tenant)}
		x.calls[k] = r
	} else if r.tenant.String() != e.ref.Tenant {
		return // a key is one tenant's: nobody of ours wrote this
	}
	admitted, waited, ended := r.seq != 0, r.waits(), r.result
	note(r)
	if r.seq != 0 {
		x.sort(r, admitted, ended)
	}
	x.observe(r, admitted, waited)
}

// find is what is known of a call, or nil. The caller holds mu.
func (x *index) find(ref Ref) *record {
	k, ok := pack(ref.Key)
	if !ok {
		return nil
	}
	if r := x.calls[k]; r != nil && r.tenant.String() == ref.Tenant {
		return r
	}
	return nil
}

// sort puts an admitted record where it belongs, knowing where it did before
// the last entry.
func (x *index) sort(r *record, wasAdmitted, wasEnded bool) {
	if !wasAdmitted {
		x.insert(r)
	}
	switch {
	case r.result && !(wasAdmitted && wasEnded):
		x.undue(r)
		x.ended++
		x.evict()
	case !r.result && !wasAdmitted:
		x.dueAt(r, r.admitted)
	}
}

// insert puts a record into the order. Nearly always that is the end.
func (x *index) insert(r *record) {
	i, _ := slices.BinarySearchFunc(x.order, r.seq, func(r *record, seq uint64) int { return cmp.Compare(r.seq, seq) })
	x.order = slices.Insert(x.order, i, r)
}

// evict forgets the oldest calls that have ended, down to the limit, when that
// is worth a pass over all.
func (x *index) evict() {
	surplus := min(len(x.order)-x.limit, x.ended)
	if surplus <= x.limit/8 {
		return
	}
	x.ended -= surplus
	x.order = slices.DeleteFunc(x.order, func(r *record) bool {
		if surplus == 0 || !r.result {
			return false
		}
		surplus--
		delete(x.calls, r.key)
		return true
	})
}

// read makes of an entry what it changes in a record. Of a call that has ended
// only its admission and its end are of interest.
func read(e Entry) (func(*record), error) {
	switch e.Kind {
	case KindAdmit:
		return readAdmit(e)
	case KindResult:
		kind := kindOfResult(e.Data)
		return func(r *record) { r.end(kind, e.Time) }, nil
	}
	note, err := readBegun(e)
	return func(r *record) {
		if !r.result {
			note(r.beginning())
		}
	}, err
}

// readBegun reads what happens to a call between the two.
func readBegun(e Entry) (func(*begun), error) {
	switch e.Kind {
	case KindClaim:
		var c claim
		err := value(e.Data, nameClaim, &c)
		return func(b *begun) { b.count(c.Attempt, e.Time, c.Worker) }, err
	case KindStart:
		m, err := markerOf(e)
		return func(b *begun) {
			if b.start == nil || b.start.Time.Before(m.Time) {
				b.start = m
			}
			b.started(m)
		}, err
	default:
		var c cancelRequest
		err := value(e.Data, nameCancel, &c)
		return func(b *begun) { b.cancel = &c.Reason }, err
	}
}

// readAdmit reads the few members of the admission that a list shows; the
// spec and the arguments are passed over.
func readAdmit(e Entry) (func(*record), error) {
	var a struct {
		Call struct {
			Tool       string `json:"tool"`
			ThreadID   string `json:"threadId"`
			RunID      string `json:"runId"`
			ToolCallID string `json:"toolCallId"`
		} `json:"call"`
		Spec *struct {
			Class       string `json:"class"`
			Annotations struct {
				Idempotent bool `json:"idempotent"`
			} `json:"annotations"`
		} `json:"spec"`
		Expires time.Time `json:"expires"`
		Refusal *struct{} `json:"refusal"`
	}
	err := value(e.Data, nameAdmit, &a)
	return func(r *record) {
		r.seq, r.admitted, r.expires = e.Seq, nano(e.Time), nano(a.Expires)
		r.refused = a.Refusal != nil
		r.tool = nameOf(a.Call.Tool)
		r.identify(a.Call.ThreadID, a.Call.RunID, a.Call.ToolCallID)
		if a.Spec != nil {
			r.class, r.idempotent = nameOf(a.Spec.Class), a.Spec.Annotations.Idempotent
		}
	}, err
}
