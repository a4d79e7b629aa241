package results

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolfleet/toolfleet/call"
)

// Summary is one line of a list.
type Summary struct {
	Ref
	Tool       string
	ThreadID   string
	ToolCallID string
	Status     call.Status
	Kind       call.Kind
	Admitted   time.Time
	Ended      time.Time
	// Cursor continues a list after this line.
	Cursor uint64
}

// ListOptions filter and page a list.
type ListOptions struct {
	Tool   string
	Status call.Status
	// ThreadID and RunID are those that a call was first made with; empty is
	// any.
	ThreadID, RunID string
	// Before continues after a line with this cursor; 0 begins at the newest.
	Before uint64
	// Limit is at most 1000; 0 means 100.
	Limit int
}

// The bounds of a list.
const (
	defaultList = 100
	maxList     = 1000
	// listWait is how long a list waits for entries of this process's own
	// making to come back from the server.
	listWait = time.Second
)

// errNoList is returned by a process that follows some kinds only.
var errNoList = errors.New("results: this process does not follow the whole log, so it has no list of calls")

// List lists a tenant's calls, newest first.
//
// It shows everything that this process appended or that a follower of it has
// seen, and what others did a moment ago. It ends where the index ends: at the
// newest 100,000 calls, or at [MaxAge]. Until Run has read the history, List
// waits, for as long as ctx allows.
func (l *Log) List(ctx context.Context, tenant string, o ListOptions) ([]Summary, error) {
	if err := l.indexReady(ctx); err != nil {
		return nil, err
	}
	if o.Limit <= 0 {
		o.Limit = defaultList
	}
	return l.index.list(tenant, o, min(o.Limit, maxList)), nil
}

// indexReady waits until the index holds the history and what this process
// appended.
func (l *Log) indexReady(ctx context.Context) error {
	if !l.followsAll() {
		return errNoList
	}
	select {
	case <-l.index.loaded:
	case <-ctx.Done():
		return fmt.Errorf("results: list: the log's history is still being read: %w", context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	l.fan.await(ctx, l.mine.Load())
	return nil
}

func (x *index) list(tenant string, o ListOptions, limit int) []Summary {
	x.mu.Lock()
	defer x.mu.Unlock()
	end := len(x.order)
	if o.Before > 0 {
		end, _ = slices.BinarySearchFunc(x.order, o.Before, func(r *record, seq uint64) int { return cmp.Compare(r.seq, seq) })
	}
	lines := []Summary{}
	for i := end - 1; i >= 0 && len(lines) < limit; i-- {
		r := x.order[i]
		if r.tenant.String() == tenant && o.take(r) {
			lines = append(lines, r.summary())
		}
	}
	return lines
}

// take reports whether a list holds the call.
func (o ListOptions) take(r *record) bool {
	return (o.Tool == "" || r.tool.String() == o.Tool) &&
		(o.Status == "" || r.stands() == o.Status) &&
		(o.ThreadID == "" || r.threadID() == o.ThreadID) &&
		(o.RunID == "" || r.runID() == o.RunID)
}

// Unfinished is what the index knows of a call without a result. It may be a
// moment old: look before acting on it.
type Unfinished struct {
	Ref
	Tool       string
	ToolCallID string
	Class      string
	Idempotent bool
	// Refused is true when the call is never to run: its admission holds the
	// answer.
	Refused  bool
	Admitted time.Time
	Expires  time.Time
	Attempts
	// Start is the newest start, nil for none.
	Start *Marker
	// Cancel is the reason of a cancel, nil when there was none.
	Cancel *string
	// Pause is what [Log.Later] noted with the last look; 0 before the first.
	Pause time.Duration
}

// Unfinished lists the calls of all tenants that were admitted before a time
// and have no result, oldest first. Like [Log.List] it needs Run and waits for
// the history.
func (l *Log) Unfinished(ctx context.Context, before time.Time) ([]Unfinished, error) {
	if err := l.indexReady(ctx); err != nil {
		return nil, err
	}
	x := &l.index
	x.mu.Lock()
	defer x.mu.Unlock()
	var calls []Unfinished
	for _, r := range x.order {
		if !r.result && moment(r.admitted).Before(before) {
			calls = append(calls, r.unfinished())
		}
	}
	return calls, nil
}
