package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// view shows one call on a terminal in one of the formats.
type view struct {
	term  *terminal
	fleet *client.Fleet
	flags ViewFlags
	// show takes each event as it comes.
	show func(client.Event) error
	// progress is the line of the text format, nil in the others.
	progress *progress

	// id is of the call; empty until the fleet has told it.
	id      string
	tool    string
	result  *call.Result
	failure *agui.RunError
}

func newView(flags ViewFlags, term *terminal, fleet *client.Fleet) *view {
	v := &view{term: term, fleet: fleet, flags: flags, tool: "tool"}
	switch flags.Format {
	case "agui":
		v.show = func(ev client.Event) error { return agui.WriteLine(term.out, ev.JSON) }
	case "native":
		v.show = nativeTo(term.out)
	case "json":
		v.show = func(client.Event) error { return nil }
	default:
		v.progress = &progress{term: term}
		v.show = v.progress.show
	}
	return v
}

// visit takes the next event of the run.
func (v *view) visit(ev client.Event) error {
	switch e := ev.Event.(type) {
	case agui.ToolCallStart:
		v.tool = e.ToolCallName
	case agui.ToolCallResult:
		r, err := call.ResultOf(e)
		if err != nil {
			return err
		}
		v.result = &r
	case agui.RunError:
		v.failure = &e
	}
	return v.show(ev)
}

// end shows the result and says how the command ends; err is how following
// the call ended.
func (v *view) end(ctx context.Context, err error) error {
	if v.progress != nil {
		v.progress.end(v.tool, v.id, v.result)
	}
	switch {
	case err != nil:
		return err
	case v.failure != nil:
		return fmt.Errorf("%w: the run failed: %s", client.ErrUnreachable, oneLine(v.failure.Message))
	case v.result == nil:
		return errors.New("the run ended without a result; this is a fault of the fleet")
	}
	if err := v.showResult(ctx); err != nil {
		return err
	}
	if v.result.IsError {
		return errErrorResult
	}
	return nil
}

func (v *view) showResult(ctx context.Context) error {
	saver := &saver{dir: v.flags.OutputDir, name: v.tool, fetch: v.fleet.Fetch}
	switch v.flags.Format {
	case "text":
		return writeParts(ctx, v.term, v.result.Contents(), saver)
	case "json":
		line, err := json.Marshal(v.result)
		if err != nil {
			return err
		}
		if err := agui.WriteLine(v.term.out, line); err != nil {
			return err
		}
	}
	return saver.saveAll(ctx, v.result.Contents(), v.term.err)
}
