package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

// metaCall is the metadata key of RUN_STARTED that holds the call's id.
const metaCall = "toolfleet.call"

// Request is the body of POST /v1/calls.
type Request struct {
	Tool string `json:"tool"`
	// Arguments is the text as the caller wrote it; whether it is JSON that
	// fits the tool is for the fleet to say, as an error result.
	Arguments  string `json:"arguments"`
	ToolCallID string `json:"toolCallId"`
	ThreadID   string `json:"threadId"`
	RunID      string `json:"runId"`
	Timeout    string `json:"timeout,omitempty"`
	Priority   string `json:"priority,omitempty"`
}

// Event is one event of a call's run.
type Event struct {
	agui.Event
	// JSON is the event as it came, one object.
	JSON []byte
}

// Call makes a call, or finds the one with the same ids, and visits every
// event of its run. It returns when the run has ended, when visit fails, or
// when the fleet stayed away for too long. started is told the call's id once
// it is known.
func (f *Fleet) Call(ctx context.Context, req Request, started func(id string), visit func(Event) error) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	r := &run{fleet: f, visit: visit, started: started, request: body}
	return r.follow(ctx)
}

// Follow visits every event of the run of a call that was made before, from
// its beginning.
func (f *Fleet) Follow(ctx context.Context, id string, visit func(Event) error) error {
	r := &run{fleet: f, visit: visit, id: id, started: func(string) {}}
	return r.follow(ctx)
}

// run is one call being followed across any number of connections.
type run struct {
	fleet   *Fleet
	visit   func(Event) error
	started func(id string)
	// request makes the call; nil when it was made before.
	request []byte
	// id is the call's id, empty until the fleet has told it.
	id string
	// last is the id of the last event that arrived, for Last-Event-ID.
	last string
	// opened and argued say which events of the run's head were passed on: a
	// resumed stream begins with a head of its own, which the reader of one
	// run must not see again.
	opened, argued bool
	// answered says that the result was passed on. Nothing but the end of the
	// run comes after it, though a stream that broke between the two shows it
	// again.
	answered bool
	// head holds the events of the call's arguments until they are complete.
	head []Event
	done bool
}

// visitError carries an error of the visitor past the retries.
type visitError struct{ error }

func (r *run) follow(ctx context.Context) error {
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(2*time.Second),
		backoff.WithMaxElapsedTime(r.fleet.patience),
	)
	connected := false
	attempt := func() error {
		res, err := r.connect(ctx)
		if err != nil {
			// A fleet that was never there is not waited for.
			if !connected || !errors.Is(err, ErrUnreachable) {
				return backoff.Permanent(err)
			}
			return err
		}
		defer res.Body.Close()
		connected = true
		before := r.last
		err = r.read(res)
		if r.last != before {
			pauses.Reset()
		}
		switch {
		case r.done:
			return nil
		case errors.As(err, new(visitError)):
			return backoff.Permanent(err)
		case err == nil:
			err = errors.New("the stream ended early")
		}
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	err := backoff.Retry(attempt, backoff.WithContext(pauses, ctx))
	if visited := (visitError{}); errors.As(err, &visited) {
		return visited.error
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// connect opens the stream: by the request that makes the call while its id is
// not known, which finds the same call when it was made already.
func (r *run) connect(ctx context.Context) (*http.Response, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if r.id == "" {
		return r.fleet.do(ctx, http.MethodPost, r.fleet.at("/v1/calls"), r.request, header)
	}
	if r.last != "" {
		header.Set("Last-Event-ID", r.last)
	}
	return r.fleet.do(ctx, http.MethodGet, r.fleet.at("/v1/calls/"+url.PathEscape(r.id)+"/events"), nil, header)
}

// read passes on the events of one connection.
func (r *run) read(res *http.Response) error {
	if ct := res.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/event-stream") {
		return fmt.Errorf("a stream of events was expected, not %q", ct)
	}
	r.head = nil
	frames := agui.NewFrameReader(res.Body)
	for !r.done {
		f, err := frames.Next()
		if err != nil {
			return err
		}
		// Warnings are for those who write a fleet; this only shows what one
		// sends.
		ev, _, err := agui.Decode(f.Data)
		if err != nil {
			return err
		}
		if ev == nil { // of a newer protocol
			ev = agui.Other{JSON: f.Data}
		}
		if err := r.pass(Event{Event: ev, JSON: f.Data}); err != nil {
			return visitError{err}
		}
		if f.ID != "" {
			r.last = f.ID
		}
	}
	return nil
}

// know notes the call's id the first time.
func (r *run) know(id string) {
	key, err := call.ParseKey(id)
	if r.id == "" && err == nil {
		r.id = string(key)
		r.started(r.id)
	}
}

// pass hands an event to the visitor, but for a head that it has seen.
func (r *run) pass(ev Event) error {
	switch e := ev.Event.(type) {
	case agui.RunFinished, agui.RunError:
		r.done = true
		return r.visit(ev)
	case agui.RunStarted:
		var id string
		if _, err := e.Metadata.Get(metaCall, &id); err == nil {
			r.know(id)
		}
		if r.opened {
			return nil
		}
		r.opened = true
	case agui.ToolCallStart, agui.ToolCallArgs:
		r.head = append(r.head, ev)
		return nil
	case agui.ToolCallEnd:
		return r.passHead(ev)
	}
	if r.answered {
		return nil
	}
	_, r.answered = ev.Event.(agui.ToolCallResult)
	return r.visit(ev)
}

func (r *run) passHead(end Event) error {
	if r.argued {
		return nil
	}
	r.argued = true
	for _, ev := range append(r.head, end) {
		if err := r.visit(ev); err != nil {
			return err
		}
	}
	return nil
}
