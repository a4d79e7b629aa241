package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// WorkersCmd lists workers.
type WorkersCmd struct {
	Format string `help:"text: a table; json: a worker a line." enum:"text,json" default:"text"`
	FleetFlags
}

// Run lists the workers that are alive.
func (c *WorkersCmd) Run(ctx context.Context, term *terminal) error {
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	var list struct {
		Workers []json.RawMessage `json:"workers"`
	}
	if err := fleet.Get(ctx, "/v1/workers", &list); err != nil {
		return err
	}
	w := tabwriter.NewWriter(term.out, 0, 0, 2, ' ', 0)
	if c.Format == "text" {
		fmt.Fprintln(w, "ID\tHOST\tCLASS\tSLOTS\tBUSY\tRUNTIMES\tVERSION\tSINCE\tHEARTBEAT")
	}
	for _, raw := range list.Workers {
		if c.Format == "json" {
			if err := agui.WriteLine(term.out, raw); err != nil {
				return err
			}
			continue
		}
		var one client.Worker
		if err := json.Unmarshal(raw, &one); err != nil {
			return fmt.Errorf("the fleet's list cannot be read: %w", err)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s ago\n",
			oneLine(one.ID), oneLine(one.Host), oneLine(one.Class), one.Slots, one.Busy, oneLine(strings.Join(one.Runtimes, ",")),
			oneLine(one.Version), one.Started.Local().Format(time.DateTime), time.Since(one.Beat).Round(time.Second))
	}
	return w.Flush()
}
