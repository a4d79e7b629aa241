package results_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

// TestAttempts: a claim and the start behind it are one attempt, a warm start
// is one by itself, and the start of nothing is none.
func TestAttempts(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	ref, _ := admit(t, l, "tried")
	a, b := results.Worker{ID: "a", Incarnation: "1"}, results.Worker{ID: "b", Incarnation: "1"}
	for _, err := range []error{
		l.Claim(t.Context(), ref, a, 1),
		l.Claim(t.Context(), ref, a, 1), // its acknowledgement was lost
		l.Claim(t.Context(), ref, b, 2),
		start(t, l, ref, results.Marker{Worker: b, Attempt: 2}),
		l.Claim(t.Context(), ref, a, 2), // taken for dead, and was not
		l.StartAgain(t.Context(), ref, results.Marker{Worker: a, Attempt: 3}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := l.Attempts(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	want := []call.Attempt{
		{N: 1, Worker: "a", Incarnation: "1"},
		{N: 2, Worker: "b", Incarnation: "1", Started: true},
		{N: 2, Worker: "a", Incarnation: "1"},
		{N: 3, Worker: "a", Incarnation: "1", Started: true},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(time.Time{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	unrun, _ := admit(t, l, "ended without a run")
	if ok, err := l.Void(t.Context(), unrun, a, 0); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if got, err := l.Attempts(t.Context(), unrun); len(got) > 0 || err != nil {
		t.Errorf("a call that was never tried has %+v, %v", got, err)
	}
}

func start(t *testing.T, l *results.Log, ref results.Ref, m results.Marker) error {
	t.Helper()
	won, _, err := l.Start(t.Context(), ref, m)
	if !won {
		t.Error("the start lost")
	}
	return err
}
