package tool

import (
	"context"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// unheard is how long a call may run before signals are heard whether or not
// its function has looked at its context.
const unheard = 20 * time.Millisecond

// signalled is a context that cancels when it is told to by a listener, which
// it starts with the first look at it. To hear signals takes a Go program two
// goroutines and a thread: a tenth of what a short call costs in all, and most
// calls are over before a signal could come. Until then a signal ends the
// process, as it does while the process starts.
type signalled struct {
	// listen starts the listener once and returns the context that it cancels.
	listen func() context.Context
}

// newSignalled returns a context that starts listen when somebody looks at it,
// and at the latest after the given time: a function may be busy with what a
// deferred call has to undo, and look later.
func newSignalled(after time.Duration, listen func() context.Context) context.Context {
	s := signalled{sync.OnceValue(listen)}
	time.AfterFunc(after, func() { s.listen() })
	return s
}

// hear returns a listener for SIGTERM and SIGINT. It listens until the process
// ends: there is nothing to be given back before.
func hear(parent context.Context) func() context.Context {
	return func() context.Context {
		ctx, _ := signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT)
		return ctx
	}
}

// Deadline implements [context.Context]. The fleet keeps a call's deadline.
func (s signalled) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements [context.Context].
func (s signalled) Done() <-chan struct{} { return s.listen().Done() }

// Err implements [context.Context].
func (s signalled) Err() error { return s.listen().Err() }

// Value implements [context.Context]. It finds the context that is cancelled,
// so that those derived from this one need no goroutine to follow it.
func (s signalled) Value(key any) any { return s.listen().Value(key) }
