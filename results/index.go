package results

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/call"
)

// defaultIndexLimit is how many calls the index remembers.
const defaultIndexLimit = 100_000

// indexed are the kinds that the index reads. Results come first: what has
// ended by then takes the least room when its admission is read.
var indexed = [...]string{KindResult, KindAdmit, KindClaim, KindStart, KindCancel}

// index is the list of calls, in memory: about 500 bytes a call. It holds
// every call that has not ended, and of those that have the newest, up to the
// limit in all; the log itself knows the rest. It is fed by the shared
// follower and, once, by the history, in any order: each entry says something
// that holds whatever else is known.
type index struct {
	mu    sync.Mutex
	limit int
	calls map[Ref]*record
	// order has the admitted ones by sequence, oldest first.
	order []*record

	loaded chan struct{} // closed by loadedAll

	observer Observer // nil for none
}

// record is what the index knows of a call.
type record struct {
	Unfinished
	seq      uint64
	threadID string
	runID    string
	// result is set when the call has ended.
	result bool
	kind   call.Kind
	ended  time.Time
}

func (x *index) init(limit int) {
	x.limit = limit
	x.calls = map[Ref]*record{}
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
	for ref, r := range x.calls {
		if r.seq == 0 {
			delete(x.calls, ref)
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
	note, err := read(e)
	if err != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.calls[e.ref]
	if r == nil {
		r = &record{Unfinished: Unfinished{Ref: e.ref}}
		x.calls[e.ref] = r
	}
	admitted, waited := r.seq != 0, r.waits()
	note(r)
	if !admitted && r.seq != 0 {
		x.insert(r)
	}
	x.observe(r, admitted, waited)
}

// insert puts a record in its place. Nearly always that is the end.
func (x *index) insert(r *record) {
	i, _ := slices.BinarySearchFunc(x.order, r.seq, func(r *record, seq uint64) int { return cmp.Compare(r.seq, seq) })
	x.order = slices.Insert(x.order, i, r)
	if len(x.order) > x.limit+x.limit/8 {
		x.evict()
	}
}

// evict forgets the oldest calls that have ended, down to the limit.
func (x *index) evict() {
	surplus := len(x.order) - x.limit
	x.order = slices.DeleteFunc(x.order, func(r *record) bool {
		if surplus <= 0 || !r.result {
			return false
		}
		surplus--
		delete(x.calls, r.Ref)
		return true
	})
}

// read makes of an entry what it changes in a record.
func read(e Entry) (func(*record), error) {
	switch e.Kind {
	case KindAdmit:
		return readAdmit(e)
	case KindClaim:
		var c claim
		err := value(e.Data, nameClaim, &c)
		return func(r *record) {
			r.count(c.Attempt, e.Time, c.Worker)
		}, err
	case KindStart:
		m, err := markerOf(e)
		return func(r *record) {
			if r.Start == nil || r.Start.Time.Before(m.Time) {
				r.Start = m
			}
			r.started(m)
		}, err
	case KindCancel:
		var c cancelRequest
		err := value(e.Data, nameCancel, &c)
		return func(r *record) { r.Cancel = &c.Reason }, err
	default:
		kind := kindOfResult(e.Data)
		return func(r *record) { r.result, r.kind, r.ended = true, kind, e.Time }, nil
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
		r.seq, r.Admitted, r.Expires = e.Seq, e.Time, a.Expires
		r.Refused = a.Refusal != nil
		r.Tool, r.threadID, r.runID, r.ToolCallID = a.Call.Tool, a.Call.ThreadID, a.Call.RunID, a.Call.ToolCallID
		if a.Spec != nil {
			r.Class, r.Idempotent = a.Spec.Class, a.Spec.Annotations.Idempotent
		}
	}, err
}
