package results_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

// ids are the toolCallIds of a list.
func ids(t *testing.T, l *results.Log, tenant string, o results.ListOptions) string {
	t.Helper()
	lines, err := l.List(t.Context(), tenant, o)
	if err != nil {
		t.Fatal(err)
	}
	s := ""
	for _, line := range lines {
		s += line.ToolCallID + " "
	}
	return s
}

// TestList lists from a log that saw the calls, and from one that was opened
// after them and reads the history.
func TestList(t *testing.T) {
	js := natsdtest.JetStream(t)
	l := open(t, js, results.Options{})
	w := results.Worker{ID: "w"}
	for i, tool := range []string{"a", "b", "a", "b", "a"} {
		j := job(fmt.Sprint("c", i))
		j.Call.Tool = tool
		if _, err := l.Admit(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		switch ref := refOf(j); i {
		case 1:
			if err := l.Claim(t.Context(), ref, w, 1); err != nil {
				t.Fatal(err)
			}
		case 2:
			if _, _, err := l.Start(t.Context(), ref, results.Marker{Worker: w}); err != nil {
				t.Fatal(err)
			}
		case 3:
			if _, err := l.Finish(t.Context(), ref, "c", call.Failure(call.KindTimeout, "late")); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := job("c9")
	other.Call.Tenant = "other"
	if _, err := l.Admit(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*results.Log{"live": l, "history": open(t, js, results.Options{})} {
		for o, want := range map[results.ListOptions]string{
			{}:                                     "c4 c3 c2 c1 c0 ",
			{Tool: "b"}:                            "c3 c1 ",
			{Status: call.StatusQueued}:            "c4 c0 ",
			{Status: call.StatusStarting}:          "c1 ",
			{Status: call.StatusRunning}:           "c2 ",
			{Status: call.StatusTimedOut}:          "c3 ",
			{Limit: 2}:                             "c4 c3 ",
			{Tool: "a", Status: call.StatusQueued}: "c4 c0 ",
		} {
			if got := ids(t, l, "default", o); got != want {
				t.Errorf("%s: %+v: %s, want %s", name, o, got, want)
			}
		}
		if got := ids(t, l, "other", results.ListOptions{}); got != "c9 " {
			t.Errorf("%s: the other tenant has %s", name, got)
		}
		lines, err := l.List(t.Context(), "default", results.ListOptions{Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		if got := ids(t, l, "default", results.ListOptions{Before: lines[1].Cursor}); got != "c2 c1 c0 " {
			t.Errorf("%s: the next page is %s", name, got)
		}
		if line := lines[1]; line.Kind != call.KindTimeout || line.Ended.IsZero() || line.Admitted.IsZero() || line.ThreadID != "thread" {
			t.Errorf("%s: %+v", name, line)
		}
	}
}

// TestTheListForgetsOldCallsThatHaveEnded, and never one that has not.
func TestTheListForgetsOldCallsThatHaveEnded(t *testing.T) {
	const limit, calls = 40, 100
	l := open(t, natsdtest.JetStream(t), results.Options{})
	results.SetIndexLimit(l, limit)
	for i := range calls {
		ref, _ := admit(t, l, fmt.Sprint("c", i))
		if i%10 == 0 {
			continue
		}
		if _, err := l.Finish(t.Context(), ref, "c", success("")); err != nil {
			t.Fatal(err)
		}
	}
	lines, err := l.List(t.Context(), "default", results.ListOptions{Limit: calls})
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) < limit || len(lines) > limit+limit/8 {
		t.Errorf("%d lines, limit %d", len(lines), limit)
	}
	open, err := l.Unfinished(t.Context(), time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if len(open) != calls/10 {
		t.Errorf("%d open calls, want %d", len(open), calls/10)
	}
}

func TestUnfinished(t *testing.T) {
	js := natsdtest.JetStream(t)
	l := open(t, js, results.Options{})
	ref, _ := admit(t, l, "open")
	w := results.Worker{ID: "w", Incarnation: "i"}
	if err := l.Claim(t.Context(), ref, w, 2); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Start(t.Context(), ref, results.Marker{Worker: w, Attempt: 2}); err != nil {
		t.Fatal(err)
	}
	if err := l.Cancel(t.Context(), ref, "why"); err != nil {
		t.Fatal(err)
	}
	refused := job("refused")
	r := call.Failure(call.KindUnknownTool, "no such tool")
	refused.Spec, refused.Refusal = nil, &r
	if _, err := l.Admit(t.Context(), refused); err != nil {
		t.Fatal(err)
	}
	done, _ := admit(t, l, "done")
	if _, err := l.Finish(t.Context(), done, "c", success("")); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*results.Log{"live": l, "history": open(t, js, results.Options{})} {
		calls, err := l.Unfinished(t.Context(), time.Now().Add(time.Minute))
		if err != nil || len(calls) != 2 {
			t.Fatalf("%s: %+v, %v", name, calls, err)
		}
		u := calls[0]
		if u.Ref != ref || u.Claims != 2 || u.ClaimedBy != w || u.Start == nil || u.Start.Worker != w || u.Cancel == nil || *u.Cancel != "why" || u.Class != "default" || u.Refused {
			t.Errorf("%s: %+v", name, u)
		}
		if u := calls[1]; !u.Refused || u.Class != "" || u.ToolCallID != "refused" {
			t.Errorf("%s: %+v", name, u)
		}
		if calls, err := l.Unfinished(t.Context(), time.Now().Add(-time.Hour)); err != nil || len(calls) != 0 {
			t.Errorf("%s: an hour ago: %+v, %v", name, calls, err)
		}
	}
}
