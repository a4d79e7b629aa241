package tool

import (
	"context"
	"slices"
	"sync"

	"github.com/toolfleet/toolfleet/agui"
)

// Call is the call that a function defined with [Define] is answering.
type Call struct {
	// ID is the toolCallId, and Name the name the model called.
	ID, Name string

	ctx      context.Context
	onUpdate func(Update)

	mu   sync.Mutex // guards over and last, and orders updates
	over bool
	last []agui.Part
}

// Update tells how far the tool is. It is cumulative: u takes the place of the
// update before. It may be called from any goroutine, does not wait for a
// reader, and does nothing once the function has returned or its context is
// done, or when nobody listens. The list of u is copied: a tool may go on
// writing into its own.
func (c *Call) Update(u Update) {
	u.Content = slices.Clone(u.Content)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.ctx.Err() != nil {
		return
	}
	c.last = u.Content
	if c.onUpdate != nil {
		c.onUpdate(u)
	}
}

// end makes later updates do nothing, and returns the content of the last one.
func (c *Call) end() []agui.Part {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.last
}
