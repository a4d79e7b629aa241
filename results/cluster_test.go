package results_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

// TestOnThreeReplicas does everything at once through three servers: each log
// reads from a replica that may be behind, and the servers refuse appends that
// meet another one in flight. One start, one result, and no follower misses
// anything.
func TestOnThreeReplicas(t *testing.T) {
	contexts := natsdtest.Cluster(t)
	logs := make([]*results.Log, len(contexts))
	for i, js := range contexts {
		logs[i] = open(t, js, results.Options{Replicas: 3})
	}
	pick := func(i int) *results.Log { return logs[i%len(logs)] }
	for round := range 10 {
		ref, seq := admit(t, pick(round), fmt.Sprint("c", round))
		followers := make([]chan []results.Entry, 6)
		for i := range followers {
			followers[i] = make(chan []results.Entry, 1)
			after := seq * uint64(i%2) // from the beginning, or from the admission
			go func() { followers[i] <- readAll(t, pick(i), ref, after) }()
		}
		var starts, finishes atomic.Int32
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				won, _, err := pick(i).Start(t.Context(), ref, results.Marker{Worker: results.Worker{ID: fmt.Sprint(i)}})
				if err != nil {
					t.Error(err)
				}
				if won {
					starts.Add(1)
				}
			})
			wg.Go(func() {
				if err := pick(i).Progress(t.Context(), ref, progress(i), false); err != nil && !errors.Is(err, results.ErrEnded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i := range 6 {
			wg.Go(func() {
				won, err := pick(i).Finish(t.Context(), ref, "c", success(""))
				if err != nil {
					t.Error(err)
				}
				if won {
					finishes.Add(1)
				}
			})
		}
		wg.Wait()
		if starts.Load() != 1 || finishes.Load() != 1 {
			t.Errorf("%d starts and %d results", starts.Load(), finishes.Load())
		}
		want := seqs(<-followers[0])
		if last := want[len(want)-1]; len(want) != 1+1+20+1 || last < seq {
			t.Errorf("%d entries", len(want))
		}
		for i, f := range followers[1:] {
			if diff := cmp.Diff(want[(i+1)%2:], seqs(<-f)); diff != "" {
				t.Errorf("follower %d: %s", i+1, diff)
			}
		}
	}
}
