package results

import (
	"encoding/base32"
	"time"
	"unique"

	"github.com/toolfleet/toolfleet/call"
)

// record is what the index knows of a call. There is one for each call that
// waits, so it is laid out for size: 128 bytes, its text, and 50 in the map.
// Times are nanoseconds since 1970, 0 for none, names of which there are few
// are shared, and what happens to calls that run is apart.
type record struct {
	key key

	refused, idempotent bool
	// result is set when the call has ended.
	result bool

	// texts are the ids of thread, run and tool call, one behind another, and
	// these the lengths of the first two.
	threadLen, runLen uint16
	// place is where the record is among the due ones, from 1 on; 0 is nowhere.
	place int32
	// pause was the last one before the call became due, in milliseconds.
	pause int32
	texts string

	// seq is the sequence of the admission; 0 when that is not known yet.
	seq                            uint64
	admitted, expires, due, ended  int64
	tenant, tool, class, endedKind name
	// begun is what has happened to a call that has not ended; nil for nothing.
	begun *begun
}

// begun is what has happened to a call since its admission.
type begun struct {
	Attempts
	start  *Marker
	cancel *string
}

func (r *record) beginning() *begun {
	if r.begun == nil {
		r.begun = &begun{}
	}
	return r.begun
}

// identify notes the ids of an admission.
func (r *record) identify(thread, run, toolCall string) {
	// Ids are at most call.MaxID long.
	r.threadLen, r.runLen = uint16(len(thread)), uint16(len(run)) //nolint:gosec // see above
	r.texts = thread + run + toolCall
}

func (r *record) threadID() string { return r.texts[:r.threadLen] }
func (r *record) runID() string    { return r.texts[r.threadLen:][:r.runLen] }
func (r *record) toolCallID() string {
	return r.texts[int(r.threadLen)+int(r.runLen):]
}

func (r *record) ref() Ref { return Ref{Tenant: r.tenant.String(), Key: r.key.unpack()} }

// started reports whether the start fence is taken.
func (r *record) started() bool { return r.begun != nil && r.begun.start != nil }

// end notes the result. What happened before it is of no interest any more.
func (r *record) end(kind call.Kind, at time.Time) {
	r.result, r.endedKind, r.ended = true, nameOf(string(kind)), nano(at)
	r.begun = nil
}

// stands says where the call stands.
func (r *record) stands() call.Status {
	switch {
	case r.result:
		return call.EndOf(call.Kind(r.endedKind.String())).Status
	case r.started() && !r.begun.start.Void:
		return call.StatusRunning
	case r.begun != nil && r.begun.Claims > 0:
		return call.StatusStarting
	}
	return call.StatusQueued
}

func (r *record) summary() Summary {
	return Summary{
		Ref: r.ref(), Tool: r.tool.String(), ThreadID: r.threadID(), ToolCallID: r.toolCallID(),
		Status: r.stands(), Kind: call.Kind(r.endedKind.String()), Admitted: moment(r.admitted), Ended: moment(r.ended), Cursor: r.seq,
	}
}

func (r *record) unfinished() Unfinished {
	u := Unfinished{
		Ref: r.ref(), Tool: r.tool.String(), ToolCallID: r.toolCallID(), Class: r.class.String(), Idempotent: r.idempotent,
		Refused: r.refused, Admitted: moment(r.admitted), Expires: moment(r.expires), Pause: time.Duration(r.pause) * time.Millisecond,
	}
	if b := r.begun; b != nil {
		u.Attempts, u.Start, u.Cancel = b.Attempts, b.start, b.cancel
	}
	return u
}

// nano is a time as records have it.
func nano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// moment is the inverse of nano.
func moment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// name is a string of which all records that have it share one copy.
type name struct{ h unique.Handle[string] }

func nameOf(s string) name {
	if s == "" {
		return name{}
	}
	return name{unique.Make(s)}
}

func (n name) String() string {
	if n == (name{}) {
		return ""
	}
	return n.h.Value()
}

// key is a call's key in 17 bytes: the 16 that its letters hold, and the last
// letter, of which they hold a part only.
type key struct {
	bytes [16]byte
	last  byte
}

var keyEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// pack is false when k is no key.
func pack(k call.Key) (p key, ok bool) {
	if _, err := call.ParseKey(string(k)); err != nil {
		return key{}, false
	}
	_, err := keyEncoding.Decode(p.bytes[:], []byte(k))
	p.last = k[len(k)-1]
	return p, err == nil
}

func (p key) unpack() call.Key {
	b := keyEncoding.AppendEncode(make([]byte, 0, 32), p.bytes[:])
	b[len(b)-1] = p.last
	return call.Key(b)
}
