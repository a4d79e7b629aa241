package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// ToolsCmd looks at tools, and changes those that a whole fleet shares.
type ToolsCmd struct {
	List   ToolsListCmd   `cmd:"" help:"List the fleet's tools."`
	Show   ToolsShowCmd   `cmd:"" help:"Show what the fleet knows about one tool."`
	Check  ToolsCheckCmd  `cmd:"" help:"Check the tool files below a directory; needs no fleet."`
	Apply  ToolsApplyCmd  `cmd:"" help:"Add or change tools of the fleet's catalogue; for operators."`
	Delete ToolsDeleteCmd `cmd:"" help:"Delete tools of the fleet's catalogue; for operators."`
	Diff   ToolsDiffCmd   `cmd:"" help:"Show what apply would change; for operators."`
	Import ToolsImportCmd `cmd:"" name:"import-mcp" help:"Write the tool files of an MCP server, which is started once to be asked."`
}

// ToolsListCmd lists tools.
type ToolsListCmd struct {
	All    bool   `help:"The tools of all tenants, with where they come from; for operators."`
	Format string `help:"text: a table; json: a tool a line." enum:"text,json" default:"text"`
	FleetFlags
}

// Run lists the tools that may be called, or all. An operator is told on
// standard error what the fleet does not serve, and why.
func (c *ToolsListCmd) Run(ctx context.Context, term *terminal) error {
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	var all client.Catalogue
	switch err := fleet.Get(ctx, "/v1/catalog", &all); {
	case err == nil:
		for _, f := range all.Faults {
			fmt.Fprintf(term.err, "warning: %s: %s\n", oneLine(f.Source), oneLine(f.Message))
		}
	case c.All:
		return err
	case !errors.As(err, new(*client.Problem)): // those who are no operators are not told
		return err
	}
	list := struct {
		Tools []json.RawMessage `json:"tools"`
	}{all.Tools}
	header, row := "NAME\tTYPE\tSOURCE\tTENANTS\tDESCRIPTION", servedRow
	if !c.All {
		header, row = "NAME\tTYPE\tDESCRIPTION", toolRow
		if err := fleet.Get(ctx, "/v1/tools", &list); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(term.out, 0, 0, 2, ' ', 0)
	if c.Format == "text" {
		fmt.Fprintln(w, header)
	}
	for _, raw := range list.Tools {
		if c.Format == "json" {
			if err := agui.WriteLine(term.out, raw); err != nil {
				return err
			}
			continue
		}
		line, err := row(raw)
		if err != nil {
			return fmt.Errorf("the fleet's list cannot be read: %w", err)
		}
		fmt.Fprintln(w, line)
	}
	return w.Flush()
}

// toolRow is a tool as its callers see it.
func toolRow(raw json.RawMessage) (string, error) {
	var t client.Tool
	err := json.Unmarshal(raw, &t)
	return fmt.Sprintf("%s\t%s\t%s", oneLine(t.Name), oneLine(t.Type), clip(oneLine(t.Description), 80)), err
}

// servedRow is a tool as operators see it.
func servedRow(raw json.RawMessage) (string, error) {
	var t client.Served
	err := json.Unmarshal(raw, &t)
	source, tenants := t.Source, strings.Join(t.Tenants, ",")
	if t.Hides {
		source += ", hides the bucket's"
	}
	if tenants == "" {
		tenants = "all"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", oneLine(t.Name), oneLine(t.Type), oneLine(source), oneLine(tenants), clip(oneLine(t.Description), 80)), err
}

// ToolsShowCmd shows a tool.
type ToolsShowCmd struct {
	Name   string `arg:"" help:"Name of the tool."`
	Output string `short:"o" help:"yaml or json: the whole declaration, as a tool file has it; for operators. Without it: what callers are told, as JSON." enum:",yaml,json" default:""`
	FleetFlags
}

// Run prints what the fleet tells about the tool.
func (c *ToolsShowCmd) Run(ctx context.Context, term *terminal) error {
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	name := url.PathEscape(c.Name)
	if c.Output == "" {
		var raw json.RawMessage
		if err := fleet.Get(ctx, "/v1/tools/"+name, &raw); err != nil {
			return err
		}
		return writeIndented(term, raw)
	}
	var d client.Declaration
	if err := fleet.Get(ctx, "/v1/catalog/"+name, &d); err != nil {
		return err
	}
	if c.Output == "json" {
		return writeIndented(term, d.Spec)
	}
	spec, err := catalog.ParseJSON(d.Spec)
	if err != nil {
		return fmt.Errorf("the fleet's answer cannot be read: %w", err)
	}
	text, err := catalog.YAML(&spec)
	if err != nil {
		return err
	}
	return writeText(term, string(text))
}

func writeIndented(term *terminal, raw json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return err
	}
	return writeText(term, b.String()+"\n")
}

// writeText writes what a fleet told, as it is where no terminal reads it.
func writeText(term *terminal, text string) error {
	if !term.raw {
		text = harmless(text)
	}
	_, err := fmt.Fprint(term.out, text)
	return err
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
