package aguidoor

import (
	"context"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/results"
)

// calls runs the fleet's calls of one run and brings what happens to them to
// one reader. All methods are the reader's; the goroutines behind it only send.
type calls struct {
	dispatcher *dispatch.Dispatcher
	caller     dispatch.Caller
	run        results.RunRef
	// traceparent is the request's, or empty.
	traceparent string
	// tools and messages tell which attachments come along with a call.
	tools    Tools
	messages []agui.Message

	events  chan callEvent
	known   map[string]*execution // every call that was begun, by toolCallId
	open    int                   // those without an answer
	ctx     context.Context       // of the goroutines
	stop    context.CancelFunc
	running sync.WaitGroup
}

// execution is one call of the fleet in this run.
type execution struct {
	call call.Call
	// submitted is closed when the call is in its log, or never will be.
	submitted chan struct{}
	// answered is set when the reader got the result.
	answered bool
	// reopened is set when the agent opened the call again.
	reopened bool
}

// callEvent is one event of a call, or the failure that keeps its end from us.
type callEvent struct {
	x   *execution
	ev  agui.Event
	err error
}

func newCalls(ctx context.Context, config Config, run results.RunRef, messages []agui.Message, traceparent string) *calls {
	c := &calls{
		dispatcher: config.Dispatcher, tools: config.Tools, messages: messages,
		caller: dispatch.CallerOf(ctx), run: run, traceparent: traceparent,
		events: make(chan callEvent), known: map[string]*execution{},
	}
	c.ctx, c.stop = context.WithCancel(ctx)
	return c
}

// close ends the following, and not the calls.
func (c *calls) close() {
	c.stop()
	c.running.Wait()
}

// of makes the call that an agent's call is to the fleet. Its scope is the
// message that carries it, so that it is the same call in every run.
func (c *calls) of(tc agui.ToolCall) call.Call {
	parent := tc.ParentMessageID
	if parent == "" {
		parent = tc.ID // the id of the message that a client then makes
	}
	return call.Call{
		Tenant: c.run.Tenant, ThreadID: c.run.ThreadID, RunID: c.run.RunID, Scope: parent,
		ToolCallID: tc.ID, ParentMessageID: parent, SubagentRunID: tc.SubagentRunID,
		Tool: tc.Name, Arguments: tc.Arguments, Traceparent: c.traceparent,
	}
}

// begin starts a call, or meets it.
func (c *calls) begin(tc agui.ToolCall) {
	x := &execution{call: c.of(tc), submitted: make(chan struct{})}
	c.known[tc.ID] = x
	c.open++
	c.running.Go(func() {
		if err := c.follow(x); err != nil {
			c.send(callEvent{x: x, err: err})
		}
	})
}

// beginAll submits calls side by side before it follows them, so that a fleet
// that cannot take them now can be told apart while there is no stream yet. A
// call that was taken although another one was not goes on: the client sends
// the same messages again and meets it.
func (c *calls) beginAll(list []agui.ToolCall) error {
	var g errgroup.Group
	g.SetLimit(submitsAtOnce)
	outcomes := make([]submitted, len(list))
	for i, tc := range list {
		g.Go(func() error {
			outcomes[i] = c.submit(c.of(tc))
			return outcomes[i].err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, tc := range list {
		x := &execution{call: c.of(tc), submitted: make(chan struct{})}
		close(x.submitted)
		c.known[tc.ID] = x
		c.open++
		c.running.Go(func() {
			if err := c.show(x, outcomes[i]); err != nil {
				c.send(callEvent{x: x, err: err})
			}
		})
	}
	return nil
}

// submitsAtOnce bounds the requests to the bus of one run.
const submitsAtOnce = 16

// submitted is what became of a call: a log, or the refusal of one.
type submitted struct {
	ref     results.Ref
	refusal *call.Result
	err     error
}

func (c *calls) submit(cl call.Call) submitted {
	var files []dispatch.Upload
	if spec, ok := c.tools.Resolve(cl.Tenant, cl.Tool); ok && spec.Files != nil {
		files = attachments(spec, c.messages, cl.ToolCallID, c.caller)
	}
	t, err := c.dispatcher.Submit(c.ctx, cl, files...)
	if refusal, ok := dispatch.Refused(err); ok {
		return submitted{refusal: &refusal}
	}
	return submitted{ref: t.Ref, err: err}
}

// follow takes a call from its submit to its result.
func (c *calls) follow(x *execution) error {
	s := c.submit(x.call)
	close(x.submitted)
	if s.err != nil {
		return s.err
	}
	return c.show(x, s)
}

// show sends what there is to see of a call.
func (c *calls) show(x *execution, s submitted) error {
	if s.refusal != nil {
		c.send(callEvent{x: x, ev: local(x.call, *s.refusal)})
		return nil
	}
	run, err := c.dispatcher.Follow(c.ctx, s.ref, dispatch.FollowOptions{BlobURL: c.caller.BlobURL})
	if err != nil {
		return err
	}
	defer run.Close()
	for {
		ev, err := run.Next(c.ctx)
		if err != nil {
			return fmt.Errorf("aguidoor: follow %s: %w", s.ref.Key, unexpected(err))
		}
		switch ev.Event.(type) {
		case agui.ActivitySnapshot, agui.ActivityDelta:
			c.send(callEvent{x: x, ev: ev.Event})
		case agui.ToolCallResult:
			c.send(callEvent{x: x, ev: ev.Event})
			return nil
		}
	}
}

// unexpected is an end without a result.
func unexpected(err error) error {
	if err == io.EOF { //nolint:errorlint // Next returns it bare
		return io.ErrUnexpectedEOF
	}
	return err
}

func (c *calls) send(ev callEvent) {
	select {
	case c.events <- ev:
	case <-c.ctx.Done():
	}
}

// local is the answer to a call that has no log. Its message is not that of
// the log's result, since another call may have one under the same ids.
func local(cl call.Call, r call.Result) agui.ToolCallResult {
	ev := r.Event(cl.Key(), cl.ToolCallID)
	ev.MessageID += "-refused"
	return ev
}

// take notes what an event means for its call and returns what the client gets
// to see of it.
func (c *calls) take(e callEvent) agui.Event {
	res, ok := e.ev.(agui.ToolCallResult)
	if !ok {
		return e.ev
	}
	e.x.answered = true
	c.open--
	if e.x.reopened {
		res.Metadata = res.Metadata.Set(call.MetaReopened, true)
	}
	return res
}

// cancel asks for the end of every call that has no answer. Their results come
// as those of any other call.
func (c *calls) cancel(reason string) error {
	var g errgroup.Group
	g.SetLimit(submitsAtOnce)
	for _, x := range c.known {
		if x.answered {
			continue
		}
		g.Go(func() error {
			select {
			case <-x.submitted:
			case <-c.ctx.Done():
				return context.Cause(c.ctx)
			}
			_, err := c.dispatcher.Cancel(c.ctx, results.Ref{Tenant: x.call.Tenant, Key: x.call.Key()}, reason)
			return err
		})
	}
	return g.Wait()
}
