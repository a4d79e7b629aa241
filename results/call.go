package results

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// Opened is what [Log.Admit] found or made.
type Opened struct {
	Seq uint64
	// New is false when the log was there already; Job is the one in the log.
	New bool
	Job catalog.Job
}

// Admit opens the log of job.Call. The same call again finds its log; with
// other arguments or another tool it fails with ErrConflict. ErrFull above
// 80 % of the stream.
func (l *Log) Admit(ctx context.Context, job catalog.Job) (Opened, error) {
	ref := Ref{Tenant: job.Call.Tenant, Key: job.Call.Key()}
	if err := ref.check(); err != nil {
		return Opened{}, err
	}
	if l.fill.over(ctx, intakeLimit) {
		return l.admitted(ctx, ref, job.Call)
	}
	nonce := newNonce()
	e, won, err := l.fenced(ctx, ref, KindAdmit, custom(nameAdmit, nonce, job), nonce)
	if err != nil {
		return Opened{}, err
	}
	if won {
		return Opened{Seq: e.Seq, New: true, Job: job}, nil
	}
	return reopen(e, job.Call)
}

// admitted finds the log of a call when no new log may be opened.
func (l *Log) admitted(ctx context.Context, ref Ref, c call.Call) (Opened, error) {
	e, err := l.server.last(ctx, ref.subject(KindAdmit))
	switch {
	case errors.Is(err, errNoMessage):
		return Opened{}, fmt.Errorf("%w: over %d %% of its %d bytes are used", ErrFull, int(intakeLimit*100), l.opts.MaxBytes)
	case err != nil:
		return Opened{}, err
	}
	return reopen(e, c)
}

// reopen reads the admission of a call that is known, and compares.
func reopen(e Entry, c call.Call) (Opened, error) {
	var job catalog.Job
	if err := value(e.Data, nameAdmit, &job); err != nil {
		return Opened{}, err
	}
	if !job.Call.Same(c) {
		return Opened{}, ErrConflict
	}
	return Opened{Seq: e.Seq, Job: job}, nil
}

// Marker is the start event's content.
type Marker struct {
	Worker
	Attempt int `json:"attempt"`
	// Void is set when the call was ended without a run.
	Void bool      `json:"void,omitempty"`
	Time time.Time `json:"-"`
}

// Claim counts an attempt: n is the last claim plus one. ErrEnded when the
// call has ended.
func (l *Log) Claim(ctx context.Context, ref Ref, w Worker, n int) error {
	if err := ref.check(); err != nil {
		return err
	}
	return l.guarded(ctx, ref, KindClaim, custom(nameClaim, newNonce(), claim{w, n}), shortLife)
}

// Start takes the start fence for m. When another start is in the log it
// returns that one with won false; StartAgain appends a later start of an
// idempotent tool, with the guard alone.
//
// The fence is the only expectation that one append can carry, so a first
// start is not guarded against a result. It needs no guard: whoever ends a
// call that has been queued without running it takes the fence first.
func (l *Log) Start(ctx context.Context, ref Ref, m Marker) (won bool, other *Marker, err error) {
	if err := ref.check(); err != nil {
		return false, nil, err
	}
	nonce := newNonce()
	e, won, err := l.fenced(ctx, ref, KindStart, custom(nameStart, nonce, m), nonce)
	if err != nil || won {
		return won, nil, err
	}
	other, err = markerOf(e)
	return false, other, err
}

// Void takes the start fence for one who ends a call without running it, so
// that no worker can start it any more. ok is true, too, when somebody else has
// taken it to the same end: they may have died before their result, and the
// first result wins either way. It is false when a worker was first; that
// worker ends the call. ErrEnded when the call has ended.
func (l *Log) Void(ctx context.Context, ref Ref, w Worker, attempt int) (ok bool, err error) {
	won, other, err := l.Start(ctx, ref, Marker{Worker: w, Attempt: attempt, Void: true})
	return won || err == nil && other.Void, err
}

// StartAgain appends a start behind another one. Only for idempotent tools,
// and for those whose earlier start is void of effect.
func (l *Log) StartAgain(ctx context.Context, ref Ref, m Marker) error {
	if err := ref.check(); err != nil {
		return err
	}
	return l.guarded(ctx, ref, KindStart, custom(nameStart, newNonce(), m), 0)
}

func markerOf(e Entry) (*Marker, error) {
	m := &Marker{}
	if err := value(e.Data, nameStart, m); err != nil {
		return nil, err
	}
	m.Time = e.Time
	return m, nil
}

// Progress appends an activity event without waiting for more than one in
// flight per call; state is true for changes of status, which outrank
// progress when the log fills up. ErrEnded when the call has ended: the
// caller is late and must stop.
//
// A server that is away is not waited for. The event is dropped, and the next
// one is newer; results are what waits.
func (l *Log) Progress(ctx context.Context, ref Ref, ev agui.Event, state bool) error {
	if err := ref.check(); err != nil {
		return err
	}
	if err := away(l.js.Conn()); err != nil {
		return fmt.Errorf("results: progress dropped: %w", err)
	}
	kind := KindProgress
	if state {
		kind = KindState
	} else if l.fill.over(ctx, progressLimit) {
		return fmt.Errorf("%w: no progress over %d %%", ErrFull, int(progressLimit*100))
	}
	data, err := agui.Encode(ev)
	if err != nil {
		return fmt.Errorf("results: %s: %w", kind, err)
	}
	return l.guarded(ctx, ref, kind, data, shortLife)
}

// Finish appends the result. The first one wins; won is false when another's
// result is in the log already. A result whose event is larger than
// [blob.InlineEvent] is refused: its large parts belong into blobs.
func (l *Log) Finish(ctx context.Context, ref Ref, toolCallID string, r call.Result) (won bool, err error) {
	if err := ref.check(); err != nil {
		return false, err
	}
	nonce := newNonce()
	ev := r.Event(ref.Key, toolCallID)
	ev.Metadata = ev.Metadata.Set(metaNonce, nonce)
	data, err := agui.Encode(ev)
	if err != nil {
		return false, fmt.Errorf("results: result: %w", err)
	}
	if len(data) > blob.InlineEvent {
		return false, fmt.Errorf("results: a result belongs into blobs by its large parts: %w", &TooLarge{Size: int64(len(data)), Limit: blob.InlineEvent})
	}
	_, won, err = l.fenced(ctx, ref, KindResult, data, nonce)
	return won, err
}

// Cancel asks for a call's end. ErrEnded when it has ended, ErrNotFound when
// there is no log. Asking again is no error, and changes nothing.
func (l *Log) Cancel(ctx context.Context, ref Ref, reason string) error {
	s, err := l.Look(ctx, ref)
	switch {
	case err != nil:
		return err
	case s.Result != nil:
		return ErrEnded
	case s.Cancel != nil:
		return nil
	}
	return l.guarded(ctx, ref, KindCancel, custom(nameCancel, newNonce(), cancelRequest{reason}), 0)
}
