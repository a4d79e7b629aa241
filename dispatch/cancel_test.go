package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// TestPain33CancelIsOneKindWhereverTheCallIs: a cancel that finds the call
// waiting for its turn, or ready for a worker, ends it at once, takes its job
// away, and is told as a cancel; no deadline or stop of ours looks like it.
func TestPain33CancelIsOneKindWhereverTheCallIs(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("hang", nil))
	nowhere := func(context.Context, catalog.Job) error { return nil }
	for name, put := range map[string]func(context.Context, catalog.Job) error{
		"waiting": f.Queue.Enqueue, "ready": f.Queue.Push, "in no queue": nowhere,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCall("hang", `{"text":"x"}`, name)
			c.Priority = call.PriorityInteractive
			job, _ := f.Catalog.Check(c, c.Arguments, f.Log.Now())
			if _, err := f.Log.Admit(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			if err := put(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			ref := results.Ref{Tenant: c.Tenant, Key: c.Key()}
			cancelled(t, f, ref)
			if there, err := f.Queue.Has(t.Context(), queue.AddressOf(job)); err != nil || there {
				t.Errorf("the job is still queued: %t, %v", there, err)
			}
			st, err := f.Status(t.Context(), ref)
			if err != nil || st.Start == nil || !st.Start.Void {
				t.Errorf("a worker could start it yet: %+v, %v", st.Start, err)
			}
		})
	}
	t.Run("running", func(t *testing.T) {
		f.Work(t, map[string]dispatchtest.Tool{"hang": hang})
		ticket := submit(t, f, newCall("hang", `{"text":"x"}`, "running"))
		awaitProgress(t, f, ticket.Ref)
		cancelled(t, f, ticket.Ref)
	})
}

// cancelled cancels a call several times at once, and sees it end once.
func cancelled(t *testing.T, f *dispatchtest.Fleet, ref results.Ref) {
	t.Helper()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := f.Cancel(t.Context(), ref, "enough"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r, err := f.Wait(t.Context(), ref)
	if err != nil || r.Kind() != call.KindCancelled || r.Status() != call.StatusCancelled {
		t.Fatalf("%+v, %v", r, err)
	}
	// What has ended can be cancelled again, and nothing comes of it.
	if ended, err := f.Cancel(t.Context(), ref, "again"); err != nil || !ended {
		t.Errorf("of a call that has ended: %t, %v", ended, err)
	}
	if n := strings.Count(types(collect(t, f, ref, dispatch.FollowOptions{})), "TOOL_CALL_RESULT"); n != 1 {
		t.Errorf("%d results", n)
	}
}

func TestCancelOfACallThatSucceededOrNeverWas(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo})
	ticket := submit(t, f, newCall("echo", `{"text":"x"}`, "c1"))
	if _, err := f.Wait(t.Context(), ticket.Ref); err != nil {
		t.Fatal(err)
	}
	if ended, err := f.Cancel(t.Context(), ticket.Ref, ""); err != nil || !ended {
		t.Errorf("%t, %v", ended, err)
	}
	if r, err := f.Wait(t.Context(), ticket.Ref); err != nil || r.IsError {
		t.Errorf("a cancel changed the result: %+v, %v", r, err)
	}
	nobody := results.Ref{Tenant: call.DefaultTenant, Key: call.MakeKey("a", "b", "c", "d")}
	if _, err := f.Cancel(t.Context(), nobody, ""); !errors.Is(err, dispatch.ErrNotFound) {
		t.Errorf("of no call: %v", err)
	}
}
