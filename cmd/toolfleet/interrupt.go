package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

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

	mu        sync.Mutex
	id        string // of the call; empty until the fleet has told it
	cancelled bool   // the fleet has taken the cancel
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
	for asked := false; ; asked = true {
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
		fmt.Fprintln(i.term.err, "\nCancelling the call and waiting for its result; interrupt again to stop waiting.")
		// Beside the watch: a fleet that does not answer must not keep the
		// second interrupt from being heard.
		i.wait.Go(func() { i.cancel(ctx, id) })
	}
}

// lastMoment is how long a cancel that is on its way may take when nobody waits
// for its call any more.
const lastMoment = 2 * time.Second

func (i *interrupts) cancel(ctx context.Context, id string) {
	asking, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-asking.Done():
		case <-time.After(lastMoment):
			stop()
		}
	})()
	if err := i.fleet.Delete(asking, "/v1/calls/"+id, nil); err != nil {
		if ctx.Err() == nil {
			fmt.Fprintln(i.term.err, "toolfleet: the call was not cancelled:", err)
		}
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cancelled = true
}

// lost says what becomes of a call that err has parted us from, and how to
// come back to it. It is for after stop.
func (i *interrupts) lost(err error) {
	left := errors.Is(err, errLeft)
	switch id := i.known(); {
	case !left && !errors.Is(err, client.ErrUnreachable):
	case id == "" && left:
		fmt.Fprintln(i.term.err, "\nThe fleet had not answered yet, and may run the call. Look for it with `toolfleet calls list`.")
	case id == "":
	case i.cancelled:
		fmt.Fprintf(i.term.err, "\nThe call is being cancelled. See how it ended with `toolfleet calls show %s`.\n", id)
	default:
		tellLost(i.term, id)
	}
}

// tellLost says how to come back to a call that goes on without us.
func tellLost(term *terminal, id string) {
	fmt.Fprintf(term.err, "\nThe call goes on without us. Follow it with `toolfleet calls follow %[1]s`, or end it with `toolfleet calls cancel %[1]s`.\n", id)
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
