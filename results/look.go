package results

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// State is where a call stands, read back from its log in one look.
type State struct {
	Job catalog.Job
	Attempts
	Start *Marker
	// Cancel is the reason of a cancel, nil when there was none.
	Cancel *string
	Result *call.Result
	// Ended is when the result was written; zero while there is none.
	Ended time.Time
	// LastSeq is the sequence of the last event of the log.
	LastSeq uint64
}

// Attempts is how often workers have taken a call. A claim counts, and so does
// a start: a worker that has its sandbox at hand starts without a claim before.
type Attempts struct {
	// Claims is the number of the last attempt, 0 for none; it was made at
	// Claimed by ClaimedBy.
	Claims    int
	Claimed   time.Time
	ClaimedBy Worker
}

// count notes attempt n, as the last entry about it says. Entries come in any
// order.
func (a *Attempts) count(n int, at time.Time, by Worker) {
	if n > a.Claims || n == a.Claims && !at.Before(a.Claimed) {
		a.Claims, a.Claimed, a.ClaimedBy = n, at, by
	}
}

// started notes a start, which counts unless it was no start of a tool.
func (a *Attempts) started(m *Marker) {
	if !m.Void {
		a.count(m.Attempt, m.Time, m.Worker)
	}
}

// Look reads a call's state. ErrNotFound when there is no log.
//
// It is one request, answered by any replica from one moment of its own. A
// replica may lag, so a look is good for deciding what to try next, and the
// appends' expectations decide what happens.
func (l *Log) Look(ctx context.Context, ref Ref) (State, error) {
	if err := ref.check(); err != nil {
		return State{}, err
	}
	entries, err := l.server.lasts(ctx, ref)
	if err != nil {
		return State{}, err
	}
	if len(entries) == 0 {
		// The admission of a moment ago may not be with every replica yet. That
		// there is none is believed to the leader alone.
		e, err := l.server.last(ctx, ref.subject(KindAdmit))
		switch {
		case errors.Is(err, errNoMessage):
			return State{}, ErrNotFound
		case err != nil:
			return State{}, err
		}
		entries = []Entry{e}
	}
	var s State
	found := false
	for _, e := range entries {
		found = found || e.Kind == KindAdmit
		s.LastSeq = max(s.LastSeq, e.Seq)
		if err := s.take(e); err != nil {
			return State{}, fmt.Errorf("results: look at %s: %w", ref.Key, err)
		}
	}
	if !found {
		return State{}, ErrNotFound
	}
	return s, nil
}

// freshFor is how young a call must be for its first delivery to ask nothing. It
// is below the keeper's patience, which has queued no job again by then.
const freshFor = 5 * time.Second

// Fresh reports whether the first delivery of a job may be taken for untouched
// without a question. What has happened to the call in its first seconds
// against all likelihood is met all the same: a start or a void by the start
// fence, a result by the guard, a cancel by the watch of [Log.Cancelled], if
// that was begun before and this process knows every cancel since the
// admission.
func (l *Log) Fresh(job *catalog.Job) bool {
	age := l.Now().Sub(job.Admitted)
	follows := l.running.Load() > 0 && (l.followsAll() || slices.Contains(l.opts.Kinds, KindCancel))
	return follows && age > -freshFor && age < freshFor && l.fan.cancelsSince(job.Admitted)
}

// Untouched reports whether nothing has happened to a call since it was
// admitted: no claim, no start, no cancel, no result. It is what nearly every
// delivery finds, and a tenth of a look: one question, and an answer without a
// message in it. When it is false, look.
//
// It does not see whether there is a log. Only one that is older than [MaxAge]
// may be gone, so it is always false for a job that is about to be.
func (l *Log) Untouched(ctx context.Context, job *catalog.Job) (bool, error) {
	ref := Ref{Tenant: job.Call.Tenant, Key: job.Call.Key()}
	if err := ref.check(); err != nil {
		return false, err
	}
	if l.Now().Sub(job.Admitted) > MaxAge/2 {
		return false, nil
	}
	return l.server.none(ctx, ref.subject(KindClaim), ref.subject(KindStart), ref.subject(KindCancel), ref.subject(KindResult))
}

// Age is how long ago a call was admitted. Both moments are the server's, so the
// clocks of dispatchers and workers, and what is between them, have no part in
// it. ErrNotFound when there is no log.
func (l *Log) Age(ctx context.Context, ref Ref) (time.Duration, error) {
	if err := ref.check(); err != nil {
		return 0, err
	}
	e, err := l.server.last(ctx, ref.subject(KindAdmit))
	switch {
	case errors.Is(err, errNoMessage):
		return 0, ErrNotFound
	case err != nil:
		return 0, err
	}
	info, err := l.fill.stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("results: the server's time: %w", err)
	}
	return info.TimeStamp.Sub(e.Time), nil
}

// Await follows a call from where it stood until it has ended, and returns where
// it stands then.
//
// Behind the admission of a moment ago that is a question to nobody: the shared
// follower brings every entry.
func (l *Log) Await(ctx context.Context, ref Ref, s State) (State, error) {
	if s.Result != nil {
		return s, nil
	}
	f, err := l.Follow(ctx, ref, s.LastSeq)
	if err != nil {
		return State{}, err
	}
	defer f.Stop()
	for s.Result == nil {
		e, err := f.Next(ctx)
		if err != nil {
			return State{}, err
		}
		s.LastSeq = e.Seq
		if err := s.take(e); err != nil {
			return State{}, fmt.Errorf("results: follow %s: %w", ref.Key, err)
		}
	}
	return s, nil
}

// take notes what one entry says.
func (s *State) take(e Entry) (err error) {
	switch e.Kind {
	case KindAdmit:
		err = value(e.Data, nameAdmit, &s.Job)
	case KindClaim:
		var c claim
		err = value(e.Data, nameClaim, &c)
		s.count(c.Attempt, e.Time, c.Worker)
	case KindStart:
		if s.Start, err = markerOf(e); err == nil {
			s.started(s.Start)
		}
	case KindCancel:
		var c cancelRequest
		err = value(e.Data, nameCancel, &c)
		s.Cancel = &c.Reason
	case KindResult:
		s.Ended = e.Time
		s.Result, err = resultOf(e)
	}
	return err
}

func resultOf(e Entry) (*call.Result, error) {
	ev, err := e.Event()
	if err != nil {
		return nil, err
	}
	result, ok := ev.(agui.ToolCallResult)
	if !ok {
		return nil, fmt.Errorf("entry %d is a %s where the result belongs", e.Seq, ev.EventType())
	}
	r, err := call.ResultOf(result)
	if err != nil {
		return nil, err
	}
	return &r, nil
}
