package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// bury makes a call that ended as r says, with a dead letter that says
// sandbox_failed.
func bury(t *testing.T, f *dispatchtest.Fleet, c call.Call, started bool, r *call.Result) results.Ref {
	t.Helper()
	ticket, err := f.Submit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	w := results.Worker{ID: "w", Incarnation: "1"}
	if started {
		if won, _, err := f.Log.Start(t.Context(), ticket.Ref, results.Marker{Worker: w, Attempt: 1}); !won || err != nil {
			t.Fatal(won, err)
		}
	}
	st, err := f.Log.Look(t.Context(), ticket.Ref)
	if err != nil {
		t.Fatal(err)
	}
	attempts, err := f.Log.Attempts(t.Context(), ticket.Ref)
	if err != nil {
		t.Fatal(err)
	}
	filed, err := f.Queue.Dead().File(t.Context(), queue.NewLetter(st.Job, call.Spent(3), attempts, time.Now()))
	if !filed || err != nil {
		t.Fatal(filed, err)
	}
	if r != nil {
		if _, err := f.Log.Finish(t.Context(), ticket.Ref, c.ToolCallID, *r); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Queue.Remove(t.Context(), queue.AddressOf(st.Job)); err != nil {
		t.Fatal(err)
	}
	return ticket.Ref
}

func deadCall(id, args string) call.Call {
	return call.Call{Tenant: "default", ThreadID: "thread", RunID: "r", Scope: id, ToolCallID: id, Tool: "once", Arguments: args}
}

func deadFleet(t *testing.T) *dispatchtest.Fleet {
	return dispatchtest.New(t, dispatchtest.Spec("once", nil),
		dispatchtest.Spec("again", func(s *catalog.Spec) { s.Annotations.Idempotent = true }))
}

// TestRedrive: the call is made again as another call, once, and its letter is
// gone.
func TestRedrive(t *testing.T) {
	f := deadFleet(t)
	spent := call.Spent(3)
	for name, args := range map[string]string{"inline": `{"text":"a"}`, "blob": `{"text":"` + strings.Repeat("x", 300<<10) + `"}`} {
		t.Run(name, func(t *testing.T) {
			ref := bury(t, f, deadCall(name, args), false, &spent)
			ticket, err := f.Redrive(t.Context(), ref, "", false)
			if err != nil {
				t.Fatal(err)
			}
			c := ticket.Call
			if ticket.Key == ref.Key || c.RedriveOf != ref.Key || c.ThreadID != "thread" || c.ArgumentsDigest != call.Digest(args) {
				t.Errorf("the new call is %+v", c)
			}
			if _, err := f.DeadLetter(t.Context(), ref); !errors.Is(err, dispatch.ErrNoLetter) {
				t.Errorf("the letter is still there: %v", err)
			}
			if waits, err := f.Queue.Has(t.Context(), queue.Address{Tenant: "default", Tool: "once", Key: ticket.Key}); !waits || err != nil {
				t.Errorf("the new call waits: %v, %v", waits, err)
			}
			run, err := f.Follow(t.Context(), ticket.Ref, dispatch.FollowOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer run.Close()
			first, err := run.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var of call.Key
			if _, err := first.Event.(agui.RunStarted).Metadata.Get(dispatch.MetaRedriveOf, &of); of != ref.Key || err != nil {
				t.Errorf("the run says it is a redrive of %q, %v", of, err)
			}
		})
	}
}

// TestRedriveTwice: a dispatcher that dies between the submit and the removal
// leaves the letter, and the next redrive finds the call that was made.
func TestRedriveTwice(t *testing.T) {
	f := deadFleet(t)
	spent := call.Spent(3)
	ref := bury(t, f, deadCall("c", `{"text":"a"}`), false, &spent)
	letter, err := f.DeadLetter(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	first, err := f.Redrive(t.Context(), ref, "", false)
	if err != nil {
		t.Fatal(err)
	}
	if filed, err := f.Queue.Dead().File(t.Context(), letter); !filed || err != nil { // as if it had never gone
		t.Fatal(filed, err)
	}
	second, err := f.Redrive(t.Context(), ref, "", true)
	if err != nil || second.Key != first.Key || second.New {
		t.Errorf("the second redrive made %+v, %v", second, err)
	}
}

// TestRedriveOnlyWhatMayBe: what may have done its work, what would be refused
// and what has not ended is left alone, and the letter stays.
func TestRedriveOnlyWhatMayBe(t *testing.T) {
	f := deadFleet(t)
	spent, done := call.Spent(3), call.Result{Content: []agui.Part{agui.Text("done")}}
	of := func(tool, id string) call.Call {
		c := deadCall(id, `{"text":"a"}`)
		c.Tool = tool
		return c
	}
	for name, c := range map[string]struct {
		tool    string
		started bool
		result  *call.Result
		why     string // empty: it is redriven
		forced  string // the same with force
	}{
		"never started":                  {"once", false, &spent, "", ""},
		"started, may be repeated":       {"again", true, &spent, "", ""},
		"started, may not be repeated":   {"once", true, &spent, "may have done its work", ""},
		"answered by a worker that woke": {"again", true, &done, "answered after all (succeeded)", ""},
		"not answered yet":               {"again", false, nil, "is being ended", "is being ended"},
	} {
		t.Run(name, func(t *testing.T) {
			ref := bury(t, f, of(c.tool, name), c.started, c.result)
			for _, force := range []bool{false, true} {
				want := c.why
				if force {
					want = c.forced
				}
				_, err := f.Redrive(t.Context(), ref, "", force)
				if want == "" {
					if err != nil {
						t.Fatalf("with force %v: %v", force, err)
					}
					return
				}
				if !errors.Is(err, dispatch.ErrNotRedriven) || !strings.Contains(err.Error(), want) {
					t.Errorf("with force %v: %v, want %q", force, err, want)
				}
				if _, err := f.DeadLetter(t.Context(), ref); err != nil {
					t.Errorf("the letter: %v", err)
				}
			}
		})
	}
	t.Run("another catalogue", func(t *testing.T) {
		ref := bury(t, f, of("once", "gone"), false, &spent)
		other, err := catalog.New([]catalog.Spec{dispatchtest.Spec("again", nil)})
		if err != nil {
			t.Fatal(err)
		}
		now := f.Second(t)
		now.Dispatcher.Catalog = other
		if _, err := now.Redrive(t.Context(), ref, "", true); !errors.Is(err, dispatch.ErrNotRedriven) || !strings.Contains(err.Error(), "would be refused") {
			t.Errorf("%v", err)
		}
		if _, err := f.Redrive(t.Context(), ref, "", false); err != nil {
			t.Errorf("where the tool is there: %v", err)
		}
	})
	t.Run("no letter", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		ref := results.Ref{Tenant: "default", Key: call.MakeKey("default", "x", "x", "x")}
		if _, err := f.Redrive(ctx, ref, "", true); !errors.Is(err, dispatch.ErrNoLetter) {
			t.Errorf("%v", err)
		}
		if err := f.DropDeadLetter(ctx, ref); !errors.Is(err, dispatch.ErrNoLetter) {
			t.Errorf("%v", err)
		}
	})
}

// TestRedriveWithinTheQuota: a redrive is a call like any other, counted once,
// and one that the quota has no room for leaves the letter.
func TestRedriveWithinTheQuota(t *testing.T) {
	spent := call.Spent(3)
	for quota, want := range map[string]string{"1": "quota of 1 calls a minute", "2": ""} {
		f := dispatchtest.NewWithTenants(t, "default: {callsPerMinute: "+quota+"}\n", dispatchtest.Spec("once", nil))
		ref := bury(t, f, deadCall("c", `{"text":"a"}`), false, &spent)
		_, err := f.Redrive(t.Context(), ref, "", false)
		_, letterErr := f.DeadLetter(t.Context(), ref)
		if want == "" {
			if err != nil || !errors.Is(letterErr, dispatch.ErrNoLetter) {
				t.Errorf("quota %s: %v, %v", quota, err, letterErr)
			}
			continue
		}
		if !errors.Is(err, dispatch.ErrNotRedriven) || !strings.Contains(err.Error(), want) || letterErr != nil {
			t.Errorf("quota %s: %v, %v", quota, err, letterErr)
		}
	}
}
