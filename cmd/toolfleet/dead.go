package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// DeadCmd looks at dead letters.
type DeadCmd struct {
	List    DeadListCmd    `cmd:"" help:"List dead letters, oldest first."`
	Show    DeadShowCmd    `cmd:"" help:"Show a dead letter."`
	Redrive DeadRedriveCmd `cmd:"" help:"Make the calls of dead letters again, as new calls."`
	Drop    DeadDropCmd    `cmd:"" help:"Remove dead letters."`
}

// DeadListCmd lists dead letters.
type DeadListCmd struct {
	Tool string `help:"Only calls of this tool."`
	ListFlags
	FleetFlags
}

// Run lists dead letters, oldest first, page by page.
func (c *DeadListCmd) Run(ctx context.Context, term *terminal) error {
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	return c.show(ctx, term, listing{
		page: func(ctx context.Context, query url.Values) ([]json.RawMessage, string, error) {
			var page client.Letters
			err := fleet.Get(ctx, "/v1/dead?"+query.Encode(), &page)
			return page.Letters, page.Next, err
		},
		head: "ID\tTOOL\tKIND\tATTEMPTS\tREDRIVE\tENDED",
		line: letterLine,
	}, map[string]string{"tool": c.Tool})
}

func letterLine(w io.Writer, raw json.RawMessage) error {
	l, err := decodeEntry[client.Letter](raw)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", oneLine(l.ID), oneLine(l.Tool), kindWord(l.Kind), l.Attempts, redriveWord(&l), l.Filed.Local().Format(time.DateTime))
	return nil
}

// redriveWord says what a redrive of the letter takes.
func redriveWord(l *client.Letter) string {
	if l.Started && !l.Idempotent {
		return "by force"
	}
	return "safe"
}

// DeadShowCmd shows a dead letter.
type DeadShowCmd struct {
	ID     string `arg:"" help:"Id of the call that ended."`
	Format string `help:"text, or json: all the API tells." enum:"text,json" default:"text"`
	FleetFlags
}

// Run shows the letter, and on standard output the arguments of its call.
func (c *DeadShowCmd) Run(ctx context.Context, term *terminal) error {
	id, err := letterID(c.ID)
	if err != nil {
		return err
	}
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := fleet.Get(ctx, "/v1/dead/"+id, &raw); err != nil {
		return err
	}
	if c.Format == "json" {
		return agui.WriteLine(term.out, raw)
	}
	var l client.Letter
	if err := json.Unmarshal(raw, &l); err != nil {
		return fmt.Errorf("the fleet's answer cannot be read: %w", err)
	}
	facts := [][2]string{
		{"tool", l.Tool},
		{"kind", kindWord(l.Kind)},
		{"message", l.Message},
		{"redrive", redriveWord(&l)},
		{"admitted", l.Admitted.Local().Format(time.DateTime)},
		{"ended", l.Filed.Local().Format(time.DateTime)},
		{"thread", l.ThreadID},
		{"run", l.RunID},
		{"tool call", l.ToolCallID},
	}
	for _, a := range l.Tries {
		how := "the tool was not started"
		if a.Started {
			how = "the tool was started"
		}
		facts = append(facts, [2]string{fmt.Sprint("attempt ", a.N), fmt.Sprintf("%s, worker %s: %s", a.Time.Local().Format(time.DateTime), a.Worker, how)})
	}
	if err := writeFacts(term.err, facts); err != nil || l.Arguments == "" {
		return err
	}
	_, err = fmt.Fprintln(term.out, harmless(l.Arguments))
	return err
}

// DeadRedriveCmd makes the calls of dead letters again.
type DeadRedriveCmd struct {
	IDs   []string `arg:"" name:"id" help:"Ids of the calls that ended."`
	Force bool     `help:"Make a call again though it may have done its work."`
	FleetFlags
}

// Run prints the ids of the new calls, one a line. A letter that is refused
// does not keep the others from being redriven.
func (c *DeadRedriveCmd) Run(ctx context.Context, term *terminal) error {
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	body := struct {
		Force bool `json:"force"`
	}{c.Force}
	return eachLetter(c.IDs, func(id string) error {
		var v client.Call
		if err := fleet.Post(ctx, "/v1/dead/"+id+"/redrive", body, &v); err != nil {
			return err
		}
		fmt.Fprintf(term.err, "redriven %s; `toolfleet calls follow` shows how the new call goes\n", id)
		fmt.Fprintln(term.out, oneLine(v.ID))
		return nil
	})
}

// DeadDropCmd removes dead letters.
type DeadDropCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of the calls that ended."`
	FleetFlags
}

// Run removes the letters. Their calls keep their logs and answers.
func (c *DeadDropCmd) Run(ctx context.Context, term *terminal) error {
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	return eachLetter(c.IDs, func(id string) error {
		if err := fleet.Delete(ctx, "/v1/dead/"+id, nil); err != nil {
			return err
		}
		fmt.Fprintln(term.err, "dropped", id)
		return nil
	})
}

// eachLetter does something to each letter. All ids are looked at before the
// first is touched; a fleet that is away ends it.
func eachLetter(ids []string, do func(id string) error) error {
	for i, id := range ids {
		var err error
		if ids[i], err = letterID(id); err != nil {
			return err
		}
	}
	var errs []error
	for _, id := range ids {
		err := do(id)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", id, err))
		}
		if errors.Is(err, client.ErrUnreachable) {
			break
		}
	}
	return errors.Join(errs...)
}

// letterID checks what a user typed, so that nothing else becomes a path.
func letterID(id string) (string, error) {
	id, err := callID(id)
	if err != nil {
		return "", usagef("%q is not the id of a call; `toolfleet dead list` shows them", oneLine(id))
	}
	return id, nil
}
