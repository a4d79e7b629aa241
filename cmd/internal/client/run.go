package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
	Files      []File `json:"files,omitempty"`
}

// File is a file that a call brings.
type File struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

// Event is one event of a call's run.
type Event struct {
	agui.Event
	// JSON is the event as it came, one object.
	JSON []byte
	// id is that of its frame, for Last-Event-ID.
	id string
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
	// heard says that the connection there is now has brought an event.
	heard bool
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
		conn, cut := context.WithCancelCause(ctx)
		defer cut(nil)
		res, err := r.connect(conn)
		if err != nil {
			// A fleet that was never there is not waited for.
			if !connected || !errors.Is(err, ErrUnreachable) {
				return backoff.Permanent(err)
			}
			return err
		}
		defer res.Body.Close()
		connected = true
		alarm := time.AfterFunc(r.fleet.silence, func() { cut(errSilent) })
		defer alarm.Stop()
		err = r.read(&alive{res.Body, func() { alarm.Reset(r.fleet.silence) }})
		if err != nil && ctx.Err() == nil && context.Cause(conn) != nil {
			err = context.Cause(conn)
		}
		// Patience counts from here, where the connection was lost: a call
		// that has nothing to say for an hour may lose any number of them. A
		// connection on which not even the head of the run came was none.
		if r.heard {
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
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case connected && errors.Is(err, ErrUnreachable):
		return fmt.Errorf("%w and has not come back for %s: %w", ErrLost, r.fleet.patience, err)
	}
	return err
}

// connect opens the stream: by the request that makes the call while its id is
// not known, which finds the same call when it was made already.
func (r *run) connect(ctx context.Context) (*http.Response, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	method, path, body := http.MethodPost, "/v1/calls", r.request
	if r.id != "" {
		method, path, body = http.MethodGet, "/v1/calls/"+url.PathEscape(r.id)+"/events", nil
		if r.last != "" {
			header.Set("Last-Event-ID", r.last)
		}
	}
	res, err := r.fleet.do(ctx, method, r.fleet.at(path), body, header)
	if err != nil {
		return nil, err
	}
	if !hasType(res, "text/event-stream") {
		defer res.Body.Close()
		return nil, r.fleet.stranger(res)
	}
	return res, nil
}

// errSilent is why a connection was cut that brought nothing.
var errSilent = errors.New("the stream has fallen silent")

// alive tells of every piece that a stream brings, comments included.
type alive struct {
	io.Reader
	heard func()
}

func (a *alive) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n > 0 {
		a.heard()
	}
	return n, err
}

// read passes on the events of one connection.
func (r *run) read(body io.Reader) error {
	r.head, r.heard = nil, false
	frames := agui.NewFrameReader(body)
	for !r.done {
		ev, err := next(frames)
		if err != nil {
			return err
		}
		if err := r.pass(ev); err != nil {
			return visitError{err}
		}
		r.heard = true
		if ev.id != "" {
			r.last = ev.id
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
