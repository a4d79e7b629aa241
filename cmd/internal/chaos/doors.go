package chaos

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// door makes a call through one dispatcher, or takes it up again, and returns
// nil once the client has its answer. An error that wraps client.ErrUnreachable
// says that the dispatcher was lost, and that the client should try another.
type door func(ctx context.Context, c *client.Fleet, a asked, v visit) error

// visit is what one visit to a door brings. Its functions must not be called at
// the same time.
type visit struct {
	seen *answer
	// accepted is told the call's key as soon as the client knows that its call
	// was taken, if it ever does before the result.
	accepted func(key string)
}

// request is a call as the HTTP API takes it.
func (a asked) request() client.Request {
	return client.Request{Tool: a.tool, Arguments: a.arguments, ToolCallID: a.id, ThreadID: "chaos", RunID: a.id, Timeout: a.timeout}
}

// byStream follows the events of the call.
func byStream(ctx context.Context, c *client.Fleet, a asked, v visit) error {
	results := 0
	return c.Call(ctx, a.request(), v.accepted, func(ev client.Event) error {
		if r, ok := ev.Event.(agui.ToolCallResult); ok {
			results++
			return v.seen.take(r, results)
		}
		return nil
	})
}

// byWait holds one request open until the result is there.
func byWait(ctx context.Context, c *client.Fleet, a asked, v visit) error {
	var said client.Call
	if err := c.Post(ctx, "/v1/calls", a.request(), &said); err != nil {
		return err
	}
	if said.Result == nil {
		return fmt.Errorf("chaos: %s was answered without a result", a.id)
	}
	v.seen.note(said.Kind(), 1)
	return nil
}

// collectEvery is how often a client comes to ask for the result of a call that
// it has not waited for.
const collectEvery = 2 * time.Second

// byVisits makes the call, goes away, and comes back for the result.
func byVisits(ctx context.Context, c *client.Fleet, a asked, v visit) error {
	var said client.Call
	if err := c.Post(ctx, "/v1/calls?wait=0", a.request(), &said); err != nil {
		return err
	}
	v.accepted(said.ID)
	for said.Result == nil {
		if !pause(ctx, collectEvery) {
			return context.Cause(ctx)
		}
		if err := c.Get(ctx, "/v1/calls/"+url.PathEscape(said.ID), &said); err != nil {
			return err
		}
	}
	v.seen.note(said.Kind(), 1)
	return nil
}

// byAGUI runs what a conversation has left open. Each visit is a run of its own
// that holds the same message.
func byAGUI(ctx context.Context, c *client.Fleet, a asked, v visit) error {
	in := agui.RunAgentInput{
		ThreadID: "chaos", RunID: a.id + "-" + strconv.Itoa(v.seen.tries), ProtocolVersion: agui.ProtocolVersion,
		Messages: []agui.Message{agui.AssistantMessage{
			MessageBase: agui.MessageBase{ID: a.id},
			ToolCalls:   []agui.ToolCall{{ID: a.id, Name: a.tool, Arguments: a.arguments}},
		}},
	}
	results, finished := 0, false
	err := c.Stream(ctx, "/agui/run", in, func(ev client.Event) error {
		switch e := ev.Event.(type) {
		case agui.RunStarted: // the call is in the log before a run begins
			v.accepted("")
		case agui.ToolCallResult:
			results++
			return v.seen.take(e, results)
		case agui.RunError:
			return runError(e)
		case agui.RunFinished:
			finished = true
		}
		return nil
	})
	if err == nil && !finished {
		err = fmt.Errorf("%w: the run has no end", client.ErrUnreachable)
	}
	return err
}

// runError is a run's error as one of the client. Two of them mean that the same
// messages are to be sent again.
func runError(e agui.RunError) error {
	err := fmt.Errorf("chaos: the run ended with %s: %s", e.Code, e.Message)
	if e.Code == "shutting_down" || e.Code == "unavailable" {
		return fmt.Errorf("%w: %w", client.ErrUnreachable, err)
	}
	return err
}
