package results_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

func TestUntouched(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	w := results.Worker{ID: "w", Incarnation: "i"}
	for _, tt := range []struct {
		name  string
		touch func(ref results.Ref) error
		want  bool
	}{
		{"admitted", func(results.Ref) error { return nil }, true},
		{"progress alone is nobody's claim", func(ref results.Ref) error { return l.Progress(t.Context(), ref, progress(1), true) }, true},
		{"claimed", func(ref results.Ref) error { return l.Claim(t.Context(), ref, w, 1) }, false},
		{"void", func(ref results.Ref) error { _, err := l.Void(t.Context(), ref, w, 0); return err }, false},
		{"cancelled", func(ref results.Ref) error { return l.Cancel(t.Context(), ref, "enough") }, false},
		{"ended", func(ref results.Ref) error { _, err := l.Finish(t.Context(), ref, "c", success("1")); return err }, false},
		{"touched in every way", func(ref results.Ref) error {
			_, _, startErr := l.Start(t.Context(), ref, results.Marker{Worker: w, Attempt: 2})
			_, err := l.Finish(t.Context(), ref, "c", success("1"))
			return errors.Join(startErr, err)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := job(tt.name)
			j.Admitted = time.Now()
			if _, err := l.Admit(t.Context(), j); err != nil {
				t.Fatal(err)
			}
			if err := tt.touch(refOf(j)); err != nil {
				t.Fatal(err)
			}
			if got, err := l.Untouched(t.Context(), &j); got != tt.want || err != nil {
				t.Errorf("Untouched is %v, %v, want %v", got, err, tt.want)
			}
			// Its log may be gone, which Untouched could not tell.
			j.Admitted = time.Now().Add(-results.MaxAge)
			if got, err := l.Untouched(t.Context(), &j); got || err != nil {
				t.Errorf("Untouched of an old job is %v, %v", got, err)
			}
		})
	}
}

// A start counts as an attempt, in a look and in the index, read live and from
// history; a void one does not.
func TestStartsAreAttempts(t *testing.T) {
	js := natsdtest.JetStream(t)
	l := open(t, js, results.Options{})
	one, two := results.Worker{ID: "w1"}, results.Worker{ID: "w2"}
	ref, _ := admit(t, l, "c1")
	void, _ := admit(t, l, "c2")
	if won, _, err := l.Start(t.Context(), ref, results.Marker{Worker: one, Attempt: 1}); !won || err != nil {
		t.Fatal(won, err)
	}
	if err := l.StartAgain(t.Context(), ref, results.Marker{Worker: two, Attempt: 2}); err != nil {
		t.Fatal(err)
	}
	if ok, err := l.Void(t.Context(), void, one, 0); !ok || err != nil {
		t.Fatal(ok, err)
	}
	want := map[results.Ref]results.Attempts{ref: {Claims: 2, ClaimedBy: two}, void: {}}
	check := func(from string, ref results.Ref, got results.Attempts) {
		t.Helper()
		if got.Claims > 0 && got.Claimed.IsZero() {
			t.Errorf("%s: attempts of %s have no time", from, ref.Key)
		}
		got.Claimed = time.Time{}
		if got != want[ref] {
			t.Errorf("%s: attempts of %s are %+v, want %+v", from, ref.Key, got, want[ref])
		}
	}
	for ref := range want {
		s, err := l.Look(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		check("look", ref, s.Attempts)
	}
	for from, l := range map[string]*results.Log{"live": l, "history": open(t, js, results.Options{})} {
		calls, err := l.Unfinished(t.Context(), time.Now().Add(time.Hour))
		if err != nil || len(calls) != len(want) {
			t.Fatalf("%s: %d calls, %v", from, len(calls), err)
		}
		for _, u := range calls {
			check(from, u.Ref, u.Attempts)
		}
	}
}

// Await from the admission says the same as a look behind the result.
func TestAwait(t *testing.T) {
	l := open(t, natsdtest.JetStream(t), results.Options{})
	w := results.Worker{ID: "w", Incarnation: "i"}
	j := job("c1")
	opened, err := l.Admit(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	ref := refOf(j)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	admitted := results.State{Job: j, LastSeq: opened.Seq}
	if _, err := l.Await(ctx, ref, admitted); !errors.Is(err, cause) {
		t.Errorf("Await with a context that is done: %v", err)
	}
	if _, _, err := l.Start(t.Context(), ref, results.Marker{Worker: w, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if err := l.Progress(t.Context(), ref, progress(1), true); err != nil {
		t.Fatal(err)
	}
	if err := l.Cancel(t.Context(), ref, "why"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Finish(t.Context(), ref, "c1", success("1")); err != nil {
		t.Fatal(err)
	}
	looked, err := l.Look(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []results.State{admitted, looked} {
		s, err := l.Await(t.Context(), ref, from)
		if err != nil {
			t.Fatal(err)
		}
		s.Job = looked.Job // its times have lost a clock reading
		if diff := cmp.Diff(looked, s); diff != "" {
			t.Errorf("Await is not what a look says: %s", diff)
		}
	}
}
