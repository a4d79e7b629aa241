package dispatch

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/results"
)

// MetaCall is the metadata key of RUN_STARTED that holds the call's id.
const MetaCall = "toolfleet.call"

// MetaRedriveOf is the metadata key of RUN_STARTED that holds the id of the call
// whose dead letter this one was made of.
const MetaRedriveOf = "toolfleet.redriveOf"

// argsDelta is the longest piece of arguments in one event, in bytes.
const argsDelta = 64 << 10

// view turns the entries of one call's log into a whole AG-UI run. It knows no
// clock and no bus: entries in, events out.
//
// A run shows the call as if a model had just made it (start, arguments, end),
// then what happens to it as one activity, then the one result. Entries that
// exist for the fleet (claims, starts, cancels, the admission) show nothing.
//
// The activity begins "queued" out of the admission itself, and always ends
// with the status of the result: whoever ends a call without running it writes
// no activity, and a worker that died wrote none, but a client must not be
// left with a bar that says "running" for ever.
type view struct {
	ref  results.Ref
	job  catalog.Job
	args string
	url  BlobURL

	activity call.Activity
	opened   bool
	ended    bool
}

func newView(ref results.Ref, job catalog.Job, args string, url BlobURL) *view {
	return &view{
		ref: ref, job: job, args: args, url: url,
		activity: call.Activity{ToolCallID: job.Call.ToolCallID, ToolName: job.Call.Tool, Status: call.StatusQueued},
	}
}

// absorb takes an entry that the client has seen: it changes what the run
// opens with and shows nothing.
func (v *view) absorb(e results.Entry) error {
	ev, err := v.event(e)
	if err != nil {
		return err
	}
	v.track(ev)
	return nil
}

// open begins the run. The activity is a snapshot of what was absorbed.
func (v *view) open() []agui.Event {
	v.opened = true
	c := v.job.Call
	started := agui.RunStarted{ThreadID: c.ThreadID, RunID: c.RunID, ProtocolVersion: agui.ProtocolVersion}
	started.Metadata = started.Metadata.Set(MetaCall, v.ref.Key)
	if c.RedriveOf != "" {
		started.Metadata = started.Metadata.Set(MetaRedriveOf, c.RedriveOf)
	}
	evs := []agui.Event{
		started,
		agui.ToolCallStart{ToolCallID: c.ToolCallID, ToolCallName: c.Tool, ParentMessageID: c.ParentMessageID},
	}
	for piece, rest := split(v.args); ; piece, rest = split(rest) {
		evs = append(evs, agui.ToolCallArgs{ToolCallID: c.ToolCallID, Delta: piece})
		if rest == "" {
			break
		}
	}
	evs = append(evs, agui.ToolCallEnd{ToolCallID: c.ToolCallID})
	if v.job.Refusal == nil {
		evs = append(evs, v.activity.Snapshot(v.ref.Key))
	}
	return evs
}

// split takes the next piece of s, at most argsDelta long, without cutting a
// character.
func split(s string) (piece, rest string) {
	if len(s) <= argsDelta {
		return s, ""
	}
	n := argsDelta
	for n > argsDelta-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n], s[n:]
}

// show takes the next entry and returns what it shows. Precondition: the run
// was opened and has not ended.
func (v *view) show(e results.Entry) ([]agui.Event, error) {
	ev, err := v.event(e)
	if err != nil {
		return nil, err
	}
	switch ev := ev.(type) {
	case agui.ToolCallResult:
		return v.close(ev)
	case agui.ActivitySnapshot:
		if v.track(ev) {
			ev.Metadata = public(ev.Metadata)
			return []agui.Event{ev}, nil
		}
	case agui.ActivityDelta:
		if v.track(ev) {
			ev.Metadata = public(ev.Metadata)
			return []agui.Event{ev}, nil
		}
	}
	return nil, nil
}

// close ends the run: the activity's last status, the result, the end. The
// outcome is success even for a call that was cancelled: it is the outcome of
// the run, which did what it was for and answered its one call.
func (v *view) close(res agui.ToolCallResult) ([]agui.Event, error) {
	r, err := call.ResultOf(res)
	if err != nil {
		return nil, err
	}
	v.ended = true
	var evs []agui.Event
	if st := r.Status(); v.job.Refusal == nil && v.activity.Status != st {
		last := v.activity
		last.Status, last.Seq = st, last.Seq+1
		if d, ok := last.Delta(v.ref.Key, v.activity); ok {
			evs = append(evs, d)
		}
		v.activity = last
	}
	res.Metadata = public(res.Metadata)
	res.Content.Parts = PublicParts(res.Content.Parts, v.ref, v.url)
	c := v.job.Call
	return append(evs, res, agui.RunFinished{ThreadID: c.ThreadID, RunID: c.RunID, Outcome: &agui.Outcome{Type: "success"}}), nil
}

// event decodes the entries that a view looks at; nil for all others.
func (v *view) event(e results.Entry) (agui.Event, error) {
	switch e.Kind {
	case results.KindState, results.KindProgress, results.KindResult:
		return e.Event()
	}
	return nil, nil
}

// track keeps the activity up to date and reports whether ev belongs to it. An
// event that it cannot read is a newer worker's: leaving it out costs a line
// of progress, failing would cost the result.
func (v *view) track(ev agui.Event) bool {
	switch ev := ev.(type) {
	case agui.ActivitySnapshot:
		var a call.Activity
		if ev.MessageID != v.ref.Key.ActivityMessageID() || json.Unmarshal(ev.Content, &a) != nil {
			return false
		}
		v.activity = a
		return true
	case agui.ActivityDelta:
		return ev.MessageID == v.ref.Key.ActivityMessageID() && v.activity.Apply(ev) == nil
	}
	return false
}

// public drops what the fleet keeps for itself from an event's metadata: all
// keys of ours but those a client is told about.
func public(m agui.Metadata) agui.Metadata {
	var out agui.Metadata
	for k, raw := range m {
		switch {
		case k == call.MetaError, k == call.MetaExecution, k == call.MetaExtra, !strings.HasPrefix(k, "toolfleet."):
			if out == nil {
				out = agui.Metadata{}
			}
			out[k] = raw
		}
	}
	return out
}
