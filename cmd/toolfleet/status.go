package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// StatusCmd shows the fleet on one screen.
type StatusCmd struct {
	Watch  bool          `short:"w" help:"Show it again and again, until an interrupt."`
	Every  time.Duration `help:"How often, with --watch; 500ms at the least." default:"2s"`
	Format string        `help:"text: a screen; json: all the API tells, on one line." enum:"text,json" default:"text"`
	JSON   bool          `help:"Short for --format json."`
	FleetFlags
}

const (
	// leastEvery is the shortest time between two looks.
	leastEvery = 500 * time.Millisecond
	// statusTimeout is how long a fleet may take to tell its status; a dispatcher
	// gives up on those that it asks long before.
	statusTimeout = 10 * time.Second
)

// Run shows the fleet. Without --watch it fails when something is wrong with it,
// so that scripts can ask for nothing else; with --watch it ends well, at the
// interrupt that ends it.
func (c *StatusCmd) Run(ctx context.Context, term *terminal) error {
	if c.Every < leastEvery {
		return usagef("--every must be at least %s", leastEvery)
	}
	fleet, err := c.fleet()
	if err != nil {
		return err
	}
	if c.JSON {
		c.Format = "json"
	}
	if c.Watch {
		return c.watch(ctx, term, fleet)
	}
	return c.show(ctx, term.out, term, fleet)
}

// show asks once and writes the screen to out.
func (c *StatusCmd) show(ctx context.Context, out io.Writer, term *terminal, fleet *client.Fleet) error {
	ctx, cancel := context.WithTimeoutCause(ctx, statusTimeout, fmt.Errorf("%w: it did not answer within %s", client.ErrUnreachable, statusTimeout))
	defer cancel()
	var raw json.RawMessage
	if err := fleet.Get(ctx, "/v1/status", &raw); err != nil {
		return err
	}
	var s client.Status
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("the fleet's status cannot be read: %w", err)
	}
	var err error
	if c.Format == "json" {
		err = agui.WriteLine(out, raw)
	} else {
		_, err = io.WriteString(out, (&screen{width: term.columns(), status: &s}).String())
	}
	if err == nil && len(s.Problems) > 0 {
		err = unhealthyError(len(s.Problems))
	}
	return err
}

// unhealthyError says that so many things are wrong with the fleet, which were
// shown.
type unhealthyError int

func (n unhealthyError) Error() string {
	return "the fleet is not healthy: " + plural(int(n), "problem") + ", named above"
}

// watch shows the fleet again and again. A fleet that is away is said to be, and
// asked again: it may be what is being watched.
func (c *StatusCmd) watch(ctx context.Context, term *terminal, fleet *client.Fleet) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for first := true; ; first = false {
		if err := c.redraw(ctx, term, fleet, first); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// clearScreen goes to the corner and clears the rest. What the terminal showed
// before scrolls away and stays; no mode of it is changed, so that there is
// nothing to set right at the end.
const clearScreen = "\x1b[H\x1b[2J"

// redraw shows the fleet once more: on a terminal where the last screen was, and
// elsewhere behind it, with an empty line between.
func (c *StatusCmd) redraw(ctx context.Context, term *terminal, fleet *client.Fleet, first bool) error {
	text, err := c.text(ctx, term, fleet)
	if ctx.Err() != nil {
		return nil // the interrupt came first
	}
	if err != nil {
		return err
	}
	switch {
	case !term.raw:
		text = clearScreen + text
	case !first && c.Format == "text":
		text = "\n" + text
	}
	_, err = io.WriteString(term.out, text)
	return err
}

// text is what there is to show: the fleet, or why it cannot be seen.
func (c *StatusCmd) text(ctx context.Context, term *terminal, fleet *client.Fleet) (string, error) {
	var out strings.Builder
	err := c.show(ctx, &out, term, fleet)
	switch {
	case errors.As(err, new(unhealthyError)):
		return out.String(), nil
	case errors.Is(err, client.ErrUnreachable):
		if c.Format == "json" {
			fmt.Fprintln(term.err, "toolfleet:", err)
			return "", nil
		}
		return fmt.Sprintf("%s  %s\n", time.Now().Format(time.TimeOnly), oneLine(err.Error())), nil
	}
	return out.String(), err
}
