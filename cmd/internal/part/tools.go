package part

import (
	"context"
	"log/slog"
	"slices"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/metrics"
)

// ToolsConfig says which tools a part has beside those of the fleet's bucket.
// The tags are kong's.
type ToolsConfig struct {
	Tools string `help:"Directory of tool files, read again when they change. They are served beside the tools that the fleet shares (toolfleet tools apply), and win where both have a name; without it there are only those." env:"TOOLFLEET_TOOLS"`
}

// Check reads the files, so that what is wrong with them is told before anything
// is started.
func (c ToolsConfig) Check() error {
	_, err := catalog.Follow(context.Background(), catalog.FollowerConfig{Dir: c.Tools}) // files alone wait for nothing
	return err
}

// Open reads files and bucket for the first time. Whoever opens them runs what
// is returned.
func (c ToolsConfig) Open(ctx context.Context, bus *Bus, m *metrics.Metrics, logger *slog.Logger) (*catalog.Follower, error) {
	return catalog.Follow(ctx, catalog.FollowerConfig{Dir: c.Tools, Store: bus.Tools, Metrics: m, Logger: logger})
}

// prepull has the images of the worker's tools at hand, and after each change of
// the catalogue those of the tools that there are then, until ctx is done. A
// change does not wait for the pulls of before.
func (w *Worker) prepull(ctx context.Context) error {
	for ctx.Err() == nil {
		state, changed := w.tools.State()
		pulling, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { // ends with pulling, and is waited for
			defer close(done)
			w.images.Prepull(pulling, w.mine(state))
		}()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		cancel()
		<-done
	}
	return nil
}

// follow makes the worker ready for the calls of the tools that there are, again
// and again until ctx is done.
func (w *Worker) follow(ctx context.Context) error {
	for {
		state, changed := w.tools.State()
		w.adopt(state)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// adopt makes the worker ready for tools. One that it cannot run does not stop
// it: it is told once, and a call of it is answered with what is missing.
func (w *Worker) adopt(state catalog.State) {
	tools := w.mine(state)
	lacks := map[string]string{}
	for i := range tools {
		if why := w.cannot(&tools[i]); why != "" {
			lacks[tools[i].Name] = why
			if w.lacks[tools[i].Name] != why {
				w.logger.Error("a tool of this worker's class that it cannot run", "tool", tools[i].Name, "class", w.cfg.Class, "error", why)
			}
		}
	}
	w.lacks = lacks
	w.tellUngranted(tools)
	tools = slices.DeleteFunc(tools, func(t catalog.Spec) bool { return lacks[t.Name] != "" })
	w.pool.follow(tools)
}

// mine are the tools whose calls come to this worker.
func (w *Worker) mine(state catalog.State) []catalog.Spec {
	var tools []catalog.Spec
	for _, t := range state.Tools {
		if t.Spec.Type != catalog.TypeServer && t.Spec.Class == w.cfg.Class {
			tools = append(tools, *t.Spec)
		}
	}
	return tools
}
