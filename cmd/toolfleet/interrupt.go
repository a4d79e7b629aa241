package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// errLeft is the cause of a command's end at the second interrupt.
var errLeft = errors.New("interrupted")

// interrupts turns the interrupts of one `toolfleet call` into a cancel of its
// call. Without it an interrupt would leave the tool running, since a dropped
// connection cancels nothing.
type interrupts struct {
	fleet *client.Fleet
	term  *terminal
	leave context.CancelCauseFunc
	done  chan struct{}
	wait  sync.WaitGroup

	mu sync.Mutex
	id string // of the call; empty until the fleet has told it
}

// onInterrupt watches for interrupts until stop. The context it returns ends
// with the second one, or with the first when the call is not yet known.
func onInterrupt(ctx context.Context, fleet *client.Fleet, term *terminal) (context.Context, *interrupts) {
	ctx, leave := context.WithCancelCause(ctx)
	i := &interrupts{fleet: fleet, term: term, leave: leave, done: make(chan struct{})}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	i.wait.Go(func() {
		defer signal.Stop(signals)
		i.watch(ctx, signals)
	})
	return ctx, i
}

func (i *interrupts) watch(ctx context.Context, signals <-chan os.Signal) {
	for asked := false; ; {
		select {
		case <-i.done:
			return
		case <-signals:
		}
		id := i.known()
		if id == "" || asked {
			i.leave(errLeft)
			return
		}
		asked = true
		fmt.Fprintln(i.term.err, "\nCancelling the call; interrupt again to leave it running.")
		if err := i.fleet.Delete(ctx, "/v1/calls/"+id, nil); err != nil {
			fmt.Fprintln(i.term.err, "toolfleet: cancel:", err)
		}
	}
}

// lost says how to come back to a call that err has parted us from.
func (i *interrupts) lost(err error) {
	id := i.known()
	if id != "" && (errors.Is(err, errLeft) || errors.Is(err, client.ErrUnreachable)) {
		fmt.Fprintf(i.term.err, "\nThe call goes on without us. Follow it with `toolfleet calls follow %s`.\n", id)
	}
}

// know notes the id of the call.
func (i *interrupts) know(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id = id
}

func (i *interrupts) known() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.id
}

// stop ends the watch and waits for it.
func (i *interrupts) stop() {
	close(i.done)
	i.leave(nil)
	i.wait.Wait()
}
