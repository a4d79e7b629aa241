package aguidoor_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
)

// isProgress waits until a tool runs.
func isProgress(ev agui.Event) bool { return ev.EventType() == agui.TypeActivityDelta }

// another is a second dispatcher on the same bus.
func another(t *testing.T, f *dispatchtest.Fleet) *door {
	t.Helper()
	return open(t, f)
}

func TestCancelByAnyDispatcher(t *testing.T) {
	f := fleet(t, nil)
	here, there := open(t, f), another(t, f.Second(t))
	s := here.start(direct, input("a/thread", "run 1", asks("m1", `c1 hang {}`, `c2 echo {}`)))
	s.until("progress of the hanging tool", isProgress)
	a := there.do(http.MethodDelete, "/agui/threads/a%2Fthread/runs/run%201?reason=enough", "")
	if a.Status != http.StatusAccepted || !strings.Contains(a.Body, "cancelling") {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.rest()
	if end, ok := s.last().(agui.RunFinished); !ok || end.Outcome == nil || end.Outcome.Type != agui.OutcomeCancelled || end.Result != nil {
		t.Errorf("\n%s", strings.Join(s.raw, "\n"))
	}
	if r := s.result("c1"); kind(t, r) != call.KindCancelled || !strings.Contains(s.text("c1"), "so far") {
		t.Errorf("%+v", r)
	}
	s.result("c2")
	// There is nothing left, and asking again is no error.
	if a := there.do(http.MethodDelete, "/agui/threads/a%2Fthread/runs/run%201", ""); a.Status != http.StatusOK || !strings.Contains(a.Body, "ended") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
