package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"text/tabwriter"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// ToolsCmd looks at tools.
type ToolsCmd struct {
	List  ToolsListCmd  `cmd:"" help:"List the fleet's tools."`
	Show  ToolsShowCmd  `cmd:"" help:"Show what the fleet knows about one tool."`
	Check ToolsCheckCmd `cmd:"" help:"Check the tool files below a directory; needs no fleet."`
}

// ToolsListCmd lists tools.
type ToolsListCmd struct {
	Format string `help:"text: a table; json: a tool a line." enum:"text,json" default:"text"`
	FleetFlags
}

// Run lists the tools that may be called.
func (c *ToolsListCmd) Run(ctx context.Context, term *terminal) error {
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	var list struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := fleet.Get(ctx, "/v1/tools", &list); err != nil {
		return err
	}
	w := tabwriter.NewWriter(term.out, 0, 0, 2, ' ', 0)
	if c.Format == "text" {
		fmt.Fprintln(w, "NAME\tTYPE\tDESCRIPTION")
	}
	for _, raw := range list.Tools {
		if c.Format == "json" {
			if err := agui.WriteLine(term.out, raw); err != nil {
				return err
			}
			continue
		}
		var t client.Tool
		if err := json.Unmarshal(raw, &t); err != nil {
			return fmt.Errorf("the fleet's list cannot be read: %w", err)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", oneLine(t.Name), oneLine(t.Type), clip(oneLine(t.Description), 80))
	}
	return w.Flush()
}

// ToolsShowCmd shows a tool.
type ToolsShowCmd struct {
	Name string `arg:"" help:"Name of the tool."`
	FleetFlags
}

// Run prints what the fleet tells about the tool, as JSON.
func (c *ToolsShowCmd) Run(ctx context.Context, term *terminal) error {
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := fleet.Get(ctx, "/v1/tools/"+url.PathEscape(c.Name), &raw); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return err
	}
	fmt.Fprintln(term.out, b.String())
	return nil
}

// ToolsCheckCmd checks tool files.
type ToolsCheckCmd struct {
	Dir string `arg:"" help:"Directory with files named tool.yaml or *.tool.yaml, at any depth."`
}

// Run prints every fault as file:line: field: what was expected.
func (c *ToolsCheckCmd) Run(term *terminal) error {
	if info, err := os.Stat(c.Dir); err != nil {
		return usageError{err}
	} else if !info.IsDir() {
		return usagef("%s is not a directory", c.Dir)
	}
	specs, err := catalog.LoadDir(c.Dir)
	var faults catalog.Problems
	switch {
	case errors.As(err, &faults):
		for _, f := range faults {
			fmt.Fprintln(term.out, oneLine(f.String()))
		}
		return fmt.Errorf("%s below %s", plural(len(faults), "fault"), c.Dir)
	case err != nil:
		return err
	case len(specs) == 0:
		return fmt.Errorf("no tool files (tool.yaml or *.tool.yaml) below %s", c.Dir)
	}
	for _, s := range specs {
		fmt.Fprintln(term.out, s.Name)
		if s.Approval == catalog.ApprovalRequired {
			fmt.Fprintf(term.err, "note: %s has approval: required; this fleet cannot ask for consent yet and declines every call of it\n", s.Name)
		}
	}
	fmt.Fprintf(term.err, "%s, no faults\n", plural(len(specs), "tool"))
	return nil
}
