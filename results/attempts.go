package results

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/toolfleet/toolfleet/call"
)

// maxAttemptEntries bounds what Attempts reads of one kind. An attempt is one
// claim and one start; only appends whose acknowledgement was lost add more.
const maxAttemptEntries = 16 * call.MaxAttempts

// Attempts lists which workers have taken a call, in the order in which they
// did. Claims are kept for a day, so of an older call only those attempts are
// known that got as far as the start.
//
// It asks the stream's leader, entry by entry, and misses none: once somebody
// holds the start fence, what it says about starts of a tool that may not be
// repeated is final.
func (l *Log) Attempts(ctx context.Context, ref Ref) ([]call.Attempt, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	var list []call.Attempt
	for _, kind := range []string{KindClaim, KindStart} {
		entries, err := l.every(ctx, ref.subject(kind), maxAttemptEntries)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			a, ok, err := attemptOf(e)
			if err != nil {
				return nil, err
			}
			if ok {
				list = note(list, a)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b call.Attempt) int {
		return cmp.Or(cmp.Compare(a.N, b.N), a.Time.Compare(b.Time))
	})
	return list, nil
}

// every reads the messages of a subject from the leader, at most so many.
func (l *Log) every(ctx context.Context, subject string, most int) ([]Entry, error) {
	var entries []Entry
	for seq := uint64(1); len(entries) < most; {
		e, err := l.server.next(ctx, subject, seq)
		switch {
		case errors.Is(err, errNoMessage):
			return entries, nil
		case err != nil:
			return nil, err
		}
		entries = append(entries, e)
		seq = e.Seq + 1
	}
	return entries, nil
}

// attemptOf reads a claim or a start; ok is false for a start of nothing.
func attemptOf(e Entry) (a call.Attempt, ok bool, err error) {
	if e.Kind == KindClaim {
		var c claim
		err := value(e.Data, nameClaim, &c)
		return call.Attempt{N: c.Attempt, Worker: c.ID, Incarnation: c.Incarnation, Time: e.Time}, err == nil, err
	}
	m, err := markerOf(e)
	if err != nil || m.Void {
		return call.Attempt{}, false, err
	}
	return call.Attempt{N: m.Attempt, Worker: m.ID, Incarnation: m.Incarnation, Time: e.Time, Started: true}, true, nil
}

// note adds an entry to the attempt that it belongs to, or begins one.
func note(list []call.Attempt, a call.Attempt) []call.Attempt {
	for i, b := range list {
		if b.N == a.N && b.Worker == a.Worker && b.Incarnation == a.Incarnation {
			list[i].Started = b.Started || a.Started
			return list
		}
	}
	return append(list, a)
}
