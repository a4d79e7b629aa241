package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// CallsCmd looks at calls.
type CallsCmd struct {
	List   CallsListCmd   `cmd:"" help:"List calls, newest first."`
	Show   CallsShowCmd   `cmd:"" help:"Show where a call stands, and its result."`
	Follow CallsFollowCmd `cmd:"" help:"Follow a call to its end."`
	Cancel CallsCancelCmd `cmd:"" help:"Cancel a call."`
}

// CallsListCmd lists calls.
type CallsListCmd struct {
	Tool   string `help:"Only calls of this tool."`
	Status string `help:"Only calls with this status, such as running or failed."`
	ListFlags
	FleetFlags
}

// Run lists calls, newest first, page by page.
func (c *CallsListCmd) Run(ctx context.Context, term *terminal) error {
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	return c.show(ctx, term, listing{
		page: func(ctx context.Context, query url.Values) ([]json.RawMessage, string, error) {
			var page client.Lines
			err := fleet.Get(ctx, "/v1/calls?"+query.Encode(), &page)
			return page.Calls, page.Next, err
		},
		head: "ID\tTOOL\tSTATUS\tKIND\tADMITTED\tTOOK",
		line: callLine,
	}, map[string]string{"tool": c.Tool, "status": c.Status})
}

func callLine(w io.Writer, raw json.RawMessage) error {
	l, err := decodeEntry[client.Line](raw)
	if err != nil {
		return err
	}
	took := "-"
	if l.Ended != nil {
		took = l.Ended.Sub(l.Admitted).Round(time.Millisecond).String()
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", oneLine(l.ID), oneLine(l.Tool), oneLine(string(l.Status)), kindWord(l.Kind),
		l.Admitted.Local().Format(time.DateTime), took)
	return nil
}

// kindWord is how a call failed, or a dash.
func kindWord(k call.Kind) string {
	if k == "" {
		return "-"
	}
	return oneLine(string(k))
}

// CallsShowCmd shows a call.
type CallsShowCmd struct {
	ID        string `arg:"" help:"Id of the call."`
	Format    string `help:"text, or json: all the API tells." enum:"text,json" default:"text"`
	OutputDir string `short:"o" help:"Save media of the result into this directory." type:"path"`
	FleetFlags
}

// Run shows where the call stands, and its result when it has one.
func (c *CallsShowCmd) Run(ctx context.Context, term *terminal) error {
	id, err := callID(c.ID)
	if err != nil {
		return err
	}
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := fleet.Get(ctx, "/v1/calls/"+id, &raw); err != nil {
		return err
	}
	if c.Format == "json" {
		return agui.WriteLine(term.out, raw)
	}
	var v client.Call
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("the fleet's answer cannot be read: %w", err)
	}
	status := string(v.Status)
	if v.Cancelling {
		status += ", being cancelled"
	}
	ended := "-"
	if v.Ended != nil {
		ended = fmt.Sprintf("%s, after %s", v.Ended.Local().Format(time.DateTime), v.Ended.Sub(v.Admitted).Round(time.Millisecond))
	}
	err = writeFacts(term.err, [][2]string{
		{"tool", v.Tool},
		{"status", status},
		{"kind", kindWord(v.Kind())},
		{"admitted", v.Admitted.Local().Format(time.DateTime)},
		{"ended", ended},
		{"attempts", strconv.Itoa(v.Attempts)},
		{"thread", v.ThreadID},
		{"run", v.RunID},
		{"tool call", v.ToolCallID},
	})
	if err != nil || v.Result == nil {
		return err
	}
	parts := slices.Concat(v.Result.Content, v.Result.Extra)
	return writeParts(ctx, term, parts, &saver{dir: c.OutputDir, name: v.Tool, fetch: fleet.Fetch})
}

// CallsFollowCmd follows a call that was made before.
type CallsFollowCmd struct {
	ID string `arg:"" help:"Id of the call."`
	ViewFlags
	FleetFlags
}

// Run shows the call from its beginning; an interrupt leaves it running.
func (c *CallsFollowCmd) Run(ctx context.Context, term *terminal) error {
	id, err := callID(c.ID)
	if err != nil {
		return err
	}
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	view := newView(c.ViewFlags, term, fleet)
	view.id = id
	err = fleet.Follow(ctx, id, view.visit)
	if errors.Is(err, client.ErrLost) {
		tellLost(term, id)
	}
	return view.end(ctx, err)
}

// CallsCancelCmd cancels a call.
type CallsCancelCmd struct {
	ID string `arg:"" help:"Id of the call."`
	FleetFlags
}

// Run asks for the end of the call. Its result follows; this does not wait
// for it. A call that has ended is told as it is.
func (c *CallsCancelCmd) Run(ctx context.Context, term *terminal) error {
	id, err := callID(c.ID)
	if err != nil {
		return err
	}
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	var v client.Call
	if err := fleet.Delete(ctx, "/v1/calls/"+id, &v); err != nil {
		return err
	}
	switch {
	case v.Status == call.StatusCancelled: // by this cancel or an earlier one
		fmt.Fprintln(term.err, "cancelled", id)
	case v.Status.Ended():
		fmt.Fprintf(term.err, "not cancelled: %s has ended already (%s)\n", id, oneLine(string(v.Status)))
	default:
		fmt.Fprintln(term.err, "cancelling", id)
	}
	return nil
}

// callID checks what a user typed, so that nothing else becomes a path.
func callID(id string) (string, error) {
	key, err := call.ParseKey(id)
	if err != nil {
		return "", usagef("%w; `toolfleet calls list` shows the ids", err)
	}
	return string(key), nil
}
