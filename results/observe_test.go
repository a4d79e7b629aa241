package results_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

// ledger is an Observer that writes down what it hears.
type ledger struct {
	mu       sync.Mutex
	admitted map[results.Ref]string
	left     map[results.Ref]int
	faults   []string
}

func newLedger() *ledger {
	return &ledger{admitted: map[results.Ref]string{}, left: map[results.Ref]int{}}
}

func (o *ledger) Admitted(ref results.Ref, at time.Time, refused, waits bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.admitted[ref] != "" || at.IsZero() {
		o.faults = append(o.faults, fmt.Sprintf("%s again, or at no time (%s)", ref.Key, at))
	}
	o.admitted[ref] = fmt.Sprintf("refused %t waits %t", refused, waits)
}

func (o *ledger) Left(ref results.Ref) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.left[ref]++
}

// balance is how many calls were admitted and wait, and how many left.
func (o *ledger) balance() (admitted, waiting int, left []int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ref, how := range o.admitted {
		if how == "refused false waits true" && o.left[ref] == 0 {
			waiting++
		}
	}
	return len(o.admitted), waiting, slices.Sorted(maps.Values(o.left))
}

// TestObserver hears the same of every call from a log that sees it live as
// from one that was opened afterwards: each admission once, and once that it
// waits no more.
func TestObserver(t *testing.T) {
	js := natsdtest.JetStream(t)
	live := newLedger()
	l := observed(t, js, live)
	w := results.Worker{ID: "w"}
	for i := range 5 {
		j := job(fmt.Sprint("c", i))
		ref := refOf(j)
		if i == 4 {
			refusal := call.Failure(call.KindUnknownTool, "no")
			j.Refusal = &refusal
		}
		if _, err := l.Admit(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if i == 1 || i == 2 { // started; and started, then ended
			if _, _, err := l.Start(t.Context(), ref, results.Marker{Worker: w}); err != nil {
				t.Fatal(err)
			}
		}
		if i >= 2 && i != 3 { // ended
			if _, err := l.Finish(t.Context(), ref, "c", call.Failure(call.KindTimeout, "late")); err != nil {
				t.Fatal(err)
			}
		}
		if i == 3 { // claimed: waits still
			if err := l.Claim(t.Context(), ref, w, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	history := newLedger()
	for o, l := range map[*ledger]*results.Log{live: l, history: observed(t, js, history)} {
		ids(t, l, "default", results.ListOptions{}) // everything has been heard
		admitted, waiting, left := o.balance()
		if admitted != 5 || waiting != 2 || len(o.faults) > 0 {
			t.Errorf("%d admitted, %d waiting, %v", admitted, waiting, o.faults)
		}
		for _, n := range left {
			if n != 1 {
				t.Errorf("left %v: a call left more than once", left)
			}
		}
	}
	if diff := cmp.Diff([]int{1, 1}, slices.Sorted(maps.Values(live.left))); diff != "" {
		t.Errorf("live: %s", diff)
	}
	if skew := time.Until(l.Now()).Abs(); skew > time.Minute {
		t.Errorf("the server in this process is %s away", skew)
	}
}

// observed opens a log that tells o what it learns.
func observed(t *testing.T, js jetstream.JetStream, o results.Observer) *results.Log {
	t.Helper()
	l, err := results.Open(t.Context(), js, results.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.Observe(o)
	run(t, l)
	return l
}
