package results

import (
	"context"
	"fmt"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// State is where a call stands, read back from its log in one look.
type State struct {
	Job catalog.Job
	// Claims is the number of the last claim, 0 for none; it was made at
	// Claimed by ClaimedBy.
	Claims    int
	Claimed   time.Time
	ClaimedBy Worker
	Start     *Marker
	// Cancel is the reason of a cancel, nil when there was none.
	Cancel *string
	Result *call.Result
	// Ended is when the result was written; zero while there is none.
	Ended time.Time
	// LastSeq is the sequence of the last event of the log.
	LastSeq uint64
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

// take notes what one entry says.
func (s *State) take(e Entry) (err error) {
	switch e.Kind {
	case KindAdmit:
		err = value(e.Data, nameAdmit, &s.Job)
	case KindClaim:
		var c claim
		err = value(e.Data, nameClaim, &c)
		s.Claims, s.Claimed, s.ClaimedBy = c.Attempt, e.Time, c.Worker
	case KindStart:
		s.Start, err = markerOf(e)
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
