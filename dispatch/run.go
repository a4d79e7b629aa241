package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/results"
)

// Run is one call as a whole AG-UI run: RUN_STARTED, the call and its
// arguments, an activity with its progress, exactly one TOOL_CALL_RESULT,
// RUN_FINISHED. It belongs to one goroutine.
type Run struct {
	follower *results.Follower
	view     *view
	pending  []RunEvent
}

// RunEvent is one event of a [Run].
type RunEvent struct {
	agui.Event
	// Seq is where a client that has this event may resume: the sequence of
	// the log entry whose last event it is. It is 0 on the events before the
	// last one, so that a client cannot resume in the middle of an entry.
	Seq uint64
}

// FollowOptions say how a run is shown.
type FollowOptions struct {
	// After resumes behind the event with this sequence; 0 is the beginning.
	// A resumed run begins again with RUN_STARTED, the call and a snapshot of
	// its activity, and always holds the result.
	After uint64
	// BlobURL makes the URLs of parts that are kept as blobs; nil leaves the
	// internal references.
	BlobURL BlobURL
}

// Follow shows a call as a run, from its log. ErrNotFound when there is none.
// ctx bounds Follow itself and not the run. Close must be called.
func (d *Dispatcher) Follow(ctx context.Context, ref results.Ref, o FollowOptions) (*Run, error) {
	st, err := d.Log.Look(ctx, ref)
	if err != nil {
		return nil, classify(ctx, err)
	}
	args, err := d.arguments(ctx, ref, st.Job.Call)
	if err != nil {
		return nil, classify(ctx, err)
	}
	f, err := d.Log.Follow(ctx, ref, 0)
	if err != nil {
		return nil, classify(ctx, err)
	}
	r := &Run{follower: f, view: newView(ref, st.Job, args, o.BlobURL)}
	if err := r.begin(ctx, o.After, st.LastSeq); err != nil {
		f.Stop()
		return nil, classify(ctx, err)
	}
	return r, nil
}

// begin absorbs what the client has seen and opens the run. last is the
// sequence of the newest entry at the time, where reading must stop: what
// comes behind it has to be waited for.
func (r *Run) begin(ctx context.Context, after, last uint64) error {
	var seen uint64
	for {
		e, err := r.follower.Next(ctx)
		if err != nil {
			return err
		}
		if e.Kind != results.KindAdmit && (e.Seq > after || e.Kind == results.KindResult) {
			r.push(seen, r.view.open())
			evs, err := r.view.show(e)
			r.push(e.Seq, evs)
			return err
		}
		if err := r.view.absorb(e); err != nil {
			return err
		}
		seen = e.Seq
		if e.Seq >= last {
			r.push(seen, r.view.open())
			return nil
		}
	}
}

// push queues the events of one entry; the last one carries its sequence.
func (r *Run) push(seq uint64, evs []agui.Event) {
	for i, ev := range evs {
		re := RunEvent{Event: ev}
		if i == len(evs)-1 {
			re.Seq = seq
		}
		r.pending = append(r.pending, re)
	}
}

// Next waits for the next event; after RUN_FINISHED it returns io.EOF. When ctx
// is done it returns the cause, and may be called again with another context.
func (r *Run) Next(ctx context.Context) (RunEvent, error) {
	for len(r.pending) == 0 {
		if r.view.ended {
			return RunEvent{}, io.EOF
		}
		e, err := r.follower.Next(ctx)
		if err != nil {
			return RunEvent{}, classify(ctx, err)
		}
		evs, err := r.view.show(e)
		if err != nil {
			return RunEvent{}, fmt.Errorf("dispatch: entry %d: %w", e.Seq, err)
		}
		r.push(e.Seq, evs)
	}
	ev := r.pending[0]
	r.pending = r.pending[1:]
	return ev, nil
}

// Close ends the follower. The call goes on.
func (r *Run) Close() { r.follower.Stop() }

// arguments returns the argument text, which may be in a blob. A blob that has
// expired, and arguments that were too long to be kept, are shown as none.
func (d *Dispatcher) arguments(ctx context.Context, ref results.Ref, c call.Call) (string, error) {
	if c.ArgumentsBlob == "" {
		return c.Arguments, nil
	}
	id, err := blob.Parse(c.ArgumentsBlob)
	if err != nil {
		return "", err
	}
	if id.Tenant != ref.Tenant || id.Key != ref.Key {
		return "", fmt.Errorf("dispatch: the arguments of %s are in another call's blob", ref.Key)
	}
	_, body, err := d.Blobs.Get(ctx, id, 0)
	if errors.Is(err, blob.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(body, call.MaxArguments))
	if err := errors.Join(err, body.Close()); err != nil {
		return "", fmt.Errorf("dispatch: read arguments: %w", err)
	}
	d.Metrics.BlobGot(int64(len(text)))
	return string(text), nil
}
