package dispatch_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/queue"
)

// TestTheSameCallFromAnywhereIsOneCall submits calls from two dispatchers at
// once, the same ones again and others under the same ids: one of each is new,
// the same one leads to the same log, and another one to a conflict, whichever
// came first.
func TestTheSameCallFromAnywhereIsOneCall(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	doors := []*dispatchtest.Fleet{f, f.Second(t)}
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		type outcome struct {
			args   string
			ticket dispatch.Ticket
			err    error
		}
		submits := rapid.SliceOfN(rapid.IntRange(0, 3), 2, 6).Draw(t, "door and arguments")
		outcomes := make([]outcome, len(submits))
		var wg sync.WaitGroup
		for i, n := range submits {
			wg.Go(func() {
				c := newCall("echo", fmt.Sprintf(`{"text":"%d"}`, n/2), fmt.Sprint("race", round))
				c.RunID = fmt.Sprint("run", i)
				o := outcome{args: c.Arguments}
				o.ticket, o.err = doors[n%2].Submit(t.Context(), c)
				outcomes[i] = o
			})
		}
		wg.Wait()
		var first *outcome
		for i, o := range outcomes {
			switch {
			case o.err != nil && !errors.Is(o.err, dispatch.ErrConflict):
				t.Fatal(o.err)
			case o.err == nil && o.ticket.New && first != nil:
				t.Fatal("two submits made the call")
			case o.err == nil && o.ticket.New:
				first = &outcomes[i]
			}
		}
		if first == nil {
			t.Fatal("no submit made the call")
		}
		for _, o := range outcomes {
			if same := o.args == first.args; same != (o.err == nil) {
				t.Fatalf("the same arguments: %t, and %v", same, o.err)
			}
			if o.err == nil && (o.ticket.Ref != first.ticket.Ref || o.ticket.Call.RunID != first.ticket.Call.RunID) {
				t.Fatalf("%+v leads elsewhere than %+v", o.ticket, first.ticket)
			}
		}
	})
}

// A dispatcher that died between the admission and the push leaves a log without
// a job. Whoever sends the call again does not wait for the keeper.
func TestTheSameCallAgainIsQueuedWhenItIsInNoQueue(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	c := newCall("echo", `{"text":"hi"}`, "c1")
	job, _ := f.Catalog.Check(c, c.Arguments, f.Log.Now())
	if _, err := f.Log.Admit(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	has := func() bool {
		t.Helper()
		there, err := f.Queue.Has(t.Context(), queue.AddressOf(job))
		if err != nil {
			t.Fatal(err)
		}
		return there
	}
	if has() {
		t.Fatal("the job is queued already")
	}
	for range 2 {
		if ticket := submit(t, f, c); ticket.New || !has() {
			t.Errorf("new %t, queued %t", ticket.New, has())
		}
	}
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo})
	ticket := submit(t, f, c)
	if r, err := f.Wait(t.Context(), ticket.Ref); err != nil || r.IsError {
		t.Fatalf("%+v, %v", r, err)
	}
	until(t, "the job is not acknowledged", func() bool { return !has() })
	// What has ended is not queued again.
	if submit(t, f, c); has() {
		t.Error("a call that has ended is queued")
	}
}
