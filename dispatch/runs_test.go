package dispatch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/results"
)

func TestCancelRun(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil)) // nobody works: calls wait
	other := f.Second(t)
	run := results.RunRef{Tenant: call.DefaultTenant, ThreadID: "thread", RunID: "run"}
	if _, err := f.CancelRun(t.Context(), run, ""); !errors.Is(err, dispatch.ErrNotFound) {
		t.Errorf("nobody knows the run: %v", err)
	}
	if _, err := f.CancelRun(t.Context(), results.RunRef{Tenant: call.DefaultTenant}, ""); !errors.Is(err, dispatch.ErrNotFound) {
		t.Errorf("a run without ids: %v", err)
	}
	mine := submit(t, f, newCall("echo", `{"text":"x"}`, "c1"))
	c := newCall("echo", `{"text":"x"}`, "c2")
	c.RunID = "another"
	theirs := submit(t, f, c)

	// Without a stream the log knows the calls.
	if ended, err := f.CancelRun(t.Context(), run, "enough"); err != nil || !ended {
		t.Fatalf("%v %v", ended, err)
	}
	if r, err := f.Wait(t.Context(), mine.Ref); err != nil || r.Kind() != call.KindCancelled {
		t.Errorf("%v %v", r, err)
	}
	if st, err := f.Status(t.Context(), theirs.Ref); err != nil || st.Status != call.StatusQueued {
		t.Errorf("another run's call is %s, %v", st.Status, err)
	}

	// With one, whoever streams it is told, wherever.
	cancelled, stop, err := f.WatchRun(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range 3 { // nobody listens yet, and nobody is held up
		if ended, err := other.CancelRun(t.Context(), run, "again"); err != nil || ended {
			t.Fatalf("%v %v", ended, err)
		}
	}
	if reason := <-cancelled; reason != "again" {
		t.Errorf("%q", reason)
	}
}

func TestRefusedAnswersWhatHasNoLog(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	submit(t, f, newCall("echo", `{"text":"x"}`, "c1"))
	_, conflict := f.Submit(t.Context(), newCall("echo", `{"text":"y"}`, "c1"))
	_, malformed := f.Submit(t.Context(), newCall("echo", `{}`, strings.Repeat("x", 300)))
	for err, says := range map[error]string{conflict: "same ids", malformed: "toolCallId is longer"} {
		r, ok := dispatch.Refused(err)
		if !ok || r.Kind() != call.KindInvalidArguments || !strings.Contains(r.Error.Message, says) {
			t.Errorf("%v: %+v", err, r.Error)
		}
	}
	for _, err := range []error{nil, dispatch.ErrUnavailable, dispatch.ErrNotFound} {
		if _, ok := dispatch.Refused(err); ok {
			t.Errorf("%v is answered", err)
		}
	}
}
