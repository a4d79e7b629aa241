package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// ToolsApplyCmd adds and changes tools of the fleet.
type ToolsApplyCmd struct {
	Paths      []string `arg:"" name:"path" help:"Tool files, directories with files named tool.yaml or *.tool.yaml, and - for standard input."`
	Prune      bool     `help:"Delete every tool of the fleet's catalogue that these files do not declare."`
	DryRun     bool     `help:"Say what would change, and change nothing."`
	IfRevision *uint64  `help:"Change the catalogue only if it is at this revision; diff shows it." placeholder:"N"`
	FleetFlags
}

// Run applies all tools of the files in one step, or nothing.
func (c *ToolsApplyCmd) Run(ctx context.Context, term *terminal) error {
	tools, err := loadTools(term, c.Paths)
	if err != nil {
		return err
	}
	change := client.Change{Prune: c.Prune, DryRun: c.DryRun, IfRevision: c.IfRevision}
	if change.Tools, err = rawSpecs(tools); err != nil {
		return err
	}
	return c.change(ctx, term, change)
}

// ToolsDeleteCmd deletes tools of the fleet.
type ToolsDeleteCmd struct {
	Names      []string `arg:"" name:"name" help:"Names of tools."`
	DryRun     bool     `help:"Say what would change, and change nothing."`
	IfRevision *uint64  `help:"Change the catalogue only if it is at this revision." placeholder:"N"`
	FleetFlags
}

// Run deletes all of the tools in one step, or nothing. Calls that wait run as
// they were taken.
func (c *ToolsDeleteCmd) Run(ctx context.Context, term *terminal) error {
	return c.change(ctx, term, client.Change{Delete: c.Names, DryRun: c.DryRun, IfRevision: c.IfRevision})
}

// change changes the catalogue and says what became of it.
func (f FleetFlags) change(ctx context.Context, term *terminal, change client.Change) error {
	fleet, err := f.fleet()
	if err != nil {
		return err
	}
	var done client.Changed
	if err := fleet.Post(ctx, "/v1/catalog", change, &done); err != nil {
		return err
	}
	for _, s := range done.Steps {
		fmt.Fprintln(term.out, oneLine(s.Action), oneLine(s.Name))
		if s.Hidden {
			fmt.Fprintf(term.err, "note: a file of the dispatcher declares %s too, and is served in its place\n", oneLine(s.Name))
		}
	}
	if change.DryRun {
		fmt.Fprintf(term.err, "dry run: nothing was changed; the catalogue is at revision %d\n", done.Revision)
	} else {
		fmt.Fprintf(term.err, "the catalogue is at revision %d\n", done.Revision)
	}
	return nil
}

// ToolsDiffCmd compares files with the fleet's catalogue.
type ToolsDiffCmd struct {
	Paths []string `arg:"" name:"path" help:"Tool files, directories with files named tool.yaml or *.tool.yaml, and - for standard input."`
	Prune bool     `help:"Compare as apply --prune would change."`
	FleetFlags
}

// errDiffers says that there is a difference, as diff does: by its exit code.
var errDiffers = errors.New("the fleet's catalogue is other than these files")

// Run shows what apply would change, line by line, and fails when that is
// anything.
func (c *ToolsDiffCmd) Run(ctx context.Context, term *terminal) error {
	tools, err := loadTools(term, c.Paths)
	if err != nil {
		return err
	}
	change := client.Change{Prune: c.Prune, DryRun: true}
	if change.Tools, err = rawSpecs(tools); err != nil {
		return err
	}
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	var plan client.Changed
	if err := fleet.Post(ctx, "/v1/catalog", change, &plan); err != nil {
		return err
	}
	mine := map[string]*catalog.Spec{}
	for i := range tools {
		mine[tools[i].Name] = &tools[i]
	}
	differs := false
	for _, s := range plan.Steps {
		if s.Action == catalog.Unchanged {
			continue
		}
		differs = true
		text, err := difference(ctx, fleet, s.Name, s.Was, mine[s.Name])
		if err != nil {
			return err
		}
		fmt.Fprintln(term.out, oneLine(s.Action), oneLine(s.Name))
		fmt.Fprint(term.out, harmless(text))
	}
	fmt.Fprintf(term.err, "the catalogue is at revision %d\n", plan.Revision)
	if differs {
		return errDiffers
	}
	return nil
}

// difference is a tool's change, line by line. Where the fleet serves something
// else than what is to be changed (a file hides it, or it was changed just now)
// there are no lines.
func difference(ctx context.Context, fleet *client.Fleet, name, was string, now *catalog.Spec) (string, error) {
	var before, after []byte
	if was != "" {
		var d client.Declaration
		if err := fleet.Get(ctx, "/v1/catalog/"+url.PathEscape(name), &d); err != nil {
			return "", err
		}
		if d.Source != catalog.FromBucket || d.Digest != was {
			return "", nil
		}
		spec, err := catalog.ParseJSON(d.Spec)
		if err != nil {
			return "", fmt.Errorf("what the fleet has of %s cannot be read: %w", oneLine(name), err)
		}
		if before, err = catalog.YAML(&spec); err != nil {
			return "", err
		}
	}
	if now != nil {
		var err error
		if after, err = catalog.YAML(now); err != nil {
			return "", err
		}
	}
	return string(diff.Diff("fleet/"+name, before, "files/"+name, after)), nil
}

// loadTools loads tool files; their faults are printed, one a line.
func loadTools(term *terminal, paths []string) ([]catalog.Spec, error) {
	tools, err := catalog.Load(term.in, paths...)
	if faults, ok := errors.AsType[catalog.Problems](err); ok {
		for _, f := range faults {
			fmt.Fprintln(term.err, oneLine(f.String()))
		}
		return nil, fmt.Errorf("%s; nothing was sent to the fleet", plural(len(faults), "fault"))
	}
	if err != nil {
		return nil, usageError{err}
	}
	if len(tools) == 0 {
		return nil, errors.New("no tool files (tool.yaml or *.tool.yaml) are there")
	}
	return tools, nil
}

func rawSpecs(tools []catalog.Spec) (raws []json.RawMessage, err error) {
	for i := range tools {
		raw, err := json.Marshal(&tools[i])
		if err != nil {
			return nil, err
		}
		raws = append(raws, raw)
	}
	return raws, nil
}
