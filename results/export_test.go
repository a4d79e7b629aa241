package results

import (
	"context"
	"time"
	"unsafe"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// Refill makes l look how full the stream is, now and not in a second.
func Refill(ctx context.Context, l *Log) {
	l.fill.refresh(ctx, 0)
}

// SetTime makes l believe that it is at by the server's clock, and ask for that
// clock every so often.
func SetTime(l *Log, at time.Time, every time.Duration) {
	s := *l.fill.last.Load()
	s.time, s.at = at, time.Now()
	l.fill.last.Store(&s)
	l.lookEvery = every
}

// SetIndexLimit makes the index small enough to overflow in a test.
func SetIndexLimit(l *Log, n int) { l.index.limit = n }

// SetPoll makes a follower without a shared follower ask more often.
func SetPoll(l *Log, d time.Duration) { l.poll = d }

// RecordSize is what the index keeps of a call, without its text.
const RecordSize = unsafe.Sizeof(record{})

// NewIndexed makes a log that has nothing but an index, which is loaded.
func NewIndexed() *Log {
	l := &Log{}
	l.index.init(defaultIndexLimit)
	l.index.loadedAll()
	return l
}

// MakeEntry makes an entry. Of the arguments v, an admission takes a
// [catalog.Job], a claim and a start a [Marker], a cancel a reason, a result a
// [call.Result].
func MakeEntry(ref Ref, kind string, seq uint64, at time.Time, v any) Entry {
	e := Entry{Seq: seq, Kind: kind, Time: at, ref: ref}
	switch v := v.(type) {
	case catalog.Job:
		e.Data = custom(nameAdmit, "", v)
	case string:
		e.Data = custom(nameCancel, "", cancelRequest{v})
	case call.Result:
		e.Data, _ = agui.Encode(v.Event(ref.Key, v.CallID)) // without data, no test would pass
	case Marker:
		if e.Data = custom(nameStart, "", v); kind == KindClaim {
			e.Data = custom(nameClaim, "", claim{v.Worker, v.Attempt})
		}
	}
	return e
}

// Feed gives the index an entry.
func Feed(l *Log, e Entry) { l.index.take(e) }
