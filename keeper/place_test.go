package keeper_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// limited is a call of a tool that may run one at a time.
func limited(tenant, scope string) catalog.Job {
	job := newJob(tenant, "limited", scope)
	job.Spec.MaxInFlight = 1
	return job
}

// TestAnEndBeforeTheScheduleKeepsNoPlace has a call that is cancelled between its
// admission and its schedule. Its tool is free for the next one.
func TestAnEndBeforeTheScheduleKeepsNoPlace(t *testing.T) {
	f := newFleet(t)
	p := f.join(nil)
	f.elected(p)
	f.work(p, 2, nil)
	f.await(p, f.submit(p, limited("default", "first"))) // so places are known
	ended := limited("default", "ended")
	if _, err := p.log.Admit(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	if _, err := p.log.Finish(t.Context(), refOf(ended), "c", call.Cancelled("enough")); err != nil {
		t.Fatal(err)
	}
	f.await(p, refOf(ended))
	for !p.log.HasEnded(refOf(ended)) { // a moment later
		if t.Context().Err() != nil {
			t.Fatal("the end is not told")
		}
	}
	if err := p.scheduler.Schedule(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	f.await(p, f.submit(p, limited("default", "next")))
}

// TestAMoveThatFailsKeepsItsPlace has a stream that does not let go of what was
// moved. Each call is in READY, so those behind it wait for its end.
func TestAMoveThatFailsKeepsItsPlace(t *testing.T) {
	f := newFleet(t)
	p := f.join(nil)
	f.elected(p)
	var refs []results.Ref
	for _, tenant := range []string{"a", "b"} { // no worker: they wait
		refs = append(refs, f.submit(p, limited(tenant, tenant)))
	}
	js, err := jetstream.New(p.nc)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := js.Stream(t.Context(), queue.CallsStream)
	if err != nil {
		t.Fatal(err)
	}
	config := calls.CachedInfo().Config
	config.DenyDelete = true
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	f.work(p, 4, func(_ context.Context, job catalog.Job) {
		if job.Call.Tool == "limited" {
			<-release
		}
	})
	f.awaitStarted(1)
	for i := range 10 {
		f.await(p, f.submit(p, newJob("c", "free", fmt.Sprint(i))))
	}
	close(release)
	f.await(p, refs...)
	if n := f.mostOf("limited"); n != 1 {
		t.Errorf("%d calls of the tool ran at a time, want 1", n)
	}
}
