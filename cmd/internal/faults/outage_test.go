package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch"
)

// TestDiesNATSTwentyTimes restarts the server twenty times under a load of some
// hundred calls. Each is answered, once; those that may not be repeated were
// started once; and no slot is left behind.
func TestDiesNATSTwentyTimes(t *testing.T) {
	const restarts, calls, atOnce = 20, 400, 16
	f := newFleet(t, t.TempDir())
	d := f.dispatcher()
	workers := []*part{f.worker(4, time.Minute), f.worker(4, time.Minute)}
	l := f.load(func() *dispatch.Dispatcher { return d.Dispatcher }, calls, atOnce)
	for n := range int64(restarts) {
		l.await((n + 1) * calls / (restarts + 1))
		f.down()
		f.up()
	}
	l.verify(calls, d.log)
	for _, w := range workers {
		w.stop()
		if n := w.server.Busy(); n != 0 {
			t.Errorf("%d slots are held for ever", n)
		}
	}
}

// TestDiesNATSLongerThanTheAckWait keeps the server away for longer than a
// delivery lives, while a tool that may not be repeated runs and ends. The
// redelivery that follows meets a call that is running or has ended; the tool
// was started once, and its result is the one.
func TestDiesNATSLongerThanTheAckWait(t *testing.T) {
	f := newFleet(t, t.TempDir())
	release := make(chan struct{})
	f.boxes.hold = func(string) <-chan struct{} { return release }
	d := f.dispatcher()
	f.worker(2, time.Minute)
	f.worker(2, time.Minute)
	ticket, err := d.Submit(t.Context(), newCall("once", "c1"))
	if err != nil {
		t.Fatal(err)
	}
	<-f.boxes.started
	f.down()
	close(release) // the tool ends while nobody can be told
	<-time.After(3 * ackWait)
	if _, err := d.Submit(t.Context(), newCall("once", "c2")); !errors.Is(err, dispatch.ErrUnavailable) || dispatch.RetryAfter(err) <= 0 {
		t.Errorf("a call during the outage: %v, retry after %s", err, dispatch.RetryAfter(err))
	}
	f.up()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := d.Wait(ctx, ticket.Ref)
	if err != nil || r.Kind() != "" {
		t.Fatalf("%q, %v", r.Kind(), err)
	}
	emptied(t, d)
	if n := f.boxes.startsOf("c1"); n != 1 {
		t.Errorf("the tool was started %d times", n)
	}
}

// emptied waits until no job is left: what was delivered again was acknowledged.
func emptied(t *testing.T, d *part) {
	t.Helper()
	for d.queue.Room(t.Context()).Jobs > 0 {
		if t.Context().Err() != nil {
			t.Fatal("jobs are left")
		}
	}
	has, err := d.queue.Ready(t.Context())
	if err != nil || len(has) != 0 {
		t.Errorf("left in the queue: %v, %v", has, err)
	}
}

// TestRollingRestart restarts two dispatchers and three workers one after the
// other, over and over, under load: their drains are long enough, so nothing
// but success is in order.
func TestRollingRestart(t *testing.T) {
	rolling(t, time.Minute)
}

// TestRollingRestartWithoutTime gives the workers no time to drain. What may be
// repeated is; what may not ends as interrupted; nothing is lost.
func TestRollingRestartWithoutTime(t *testing.T) {
	rolling(t, time.Millisecond, call.KindInterrupted)
}

func rolling(t *testing.T, drain time.Duration, ends ...call.Kind) {
	const rounds, calls, atOnce = 4, 300, 12
	f := newFleet(t, t.TempDir())
	f.boxes.hold = func(string) <-chan struct{} { return closedAfter(10 * time.Millisecond) }
	doors := newDoors(f.dispatcher(), f.dispatcher())
	workers := []*part{f.worker(2, drain), f.worker(2, drain), f.worker(2, drain)}
	l := f.load(doors.any, calls, atOnce)
	for n := range int64(rounds) {
		l.await(n * calls / rounds)
		for i, w := range workers {
			w.stop()
			workers[i] = f.worker(2, drain)
		}
		doors.renew(f)
	}
	l.verify(calls, f.dispatcher().log, ends...)
}

// closedAfter is a channel that is closed a moment later.
func closedAfter(d time.Duration) <-chan struct{} {
	ch := make(chan struct{})
	time.AfterFunc(d, func() { close(ch) })
	return ch
}
