package keeper_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/keeper"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// TestAnotherSchedulesWhenOneIsGone ends the process that schedules in the
// middle of its work, by a stop and by the loss of its connection, which is how
// a kill looks from outside. Its calls go on, each started once, and the limit
// of a tool holds across the change.
func TestAnotherSchedulesWhenOneIsGone(t *testing.T) {
	for name, end := range map[string]func(*process){
		"stopped": func(p *process) { p.stop() },
		"killed":  func(p *process) { p.nc.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			first := f.join(nil)
			f.elected(first)
			second, third := f.join(nil), f.join(nil)
			hold, release := make(chan struct{}), make(chan struct{})
			f.work(second, 8, func(_ context.Context, job catalog.Job) {
				switch job.Call.Tool {
				case "limited":
					<-release
				default:
					<-hold
				}
			})
			var refs []results.Ref
			for i := range 100 {
				limited := newJob("default", "limited", fmt.Sprint("limited", i))
				limited.Spec.MaxInFlight = 2
				// Some by a process that schedules, some by one that does not.
				refs = append(refs, f.submit(first, limited), f.submit(second, newJob("default", "tool", fmt.Sprint(i))))
			}
			f.awaitStarted(4)
			end(first)
			close(hold)
			f.elected(second, third)
			refs = append(refs, f.submit(third, newJob("default", "tool", "late")))
			f.awaitStarted(2 + 101) // all but the limited ones, of which two hold on
			close(release)
			f.await(second, refs...)
			f.once(refs...)
			if n := f.mostOf("limited"); n > 2 {
				t.Errorf("%d calls of a tool ran at a time, want 2 at most", n)
			}
			f.awaitEmpty(second, queue.CallsStream, queue.ReadyStream)
		})
	}
}

// TestOneThatReadsTheHistoryKeepsNobodyFromIt has a process that stands first and
// has not read the log, and another that has.
func TestOneThatReadsTheHistoryKeepsNobodyFromIt(t *testing.T) {
	f := newFleet(t)
	js := natsdtest.JetStreamOn(t, f.server)
	log, err := results.Open(t.Context(), js, results.Options{}) // and not Run
	if err != nil {
		t.Fatal(err)
	}
	q, err := queue.Open(t.Context(), js, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&keeper.Scheduler{Log: log, Queue: q}).Run(ctx) }()
	f.elected(f.join(nil))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestWhatWaitsOutlivesAllSchedulers queues calls while nobody schedules.
func TestWhatWaitsOutlivesAllSchedulers(t *testing.T) {
	f := newFleet(t)
	p := f.join(nil)
	f.elected(p)
	var refs []results.Ref
	for i := range 50 { // no worker: they wait
		refs = append(refs, f.submit(p, newJob("default", "tool", fmt.Sprint(i))))
	}
	p.stop()
	q := f.join(nil)
	f.work(q, 2, nil)
	f.await(q, refs...)
	f.once(refs...)
	f.awaitEmpty(q, queue.CallsStream, queue.ReadyStream)
}

// TestACrashBetweenPushAndDelete leaves calls in READY and in CALLS: one that
// waits, one that runs, and one that has ended. The next scheduler makes one of
// two, starts none twice, and clears away what has ended.
func TestACrashBetweenPushAndDelete(t *testing.T) {
	f := newFleet(t)
	p := f.join(nil)
	f.elected(p)
	p.stop() // the queue and the log go on
	both := newJob("default", "tool", "both")
	ended := newJob("default", "tool", "ended")
	for _, job := range []catalog.Job{both, ended} {
		if _, err := p.log.Admit(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if err := p.queue.Enqueue(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.queue.Push(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	if _, err := p.log.Finish(t.Context(), refOf(ended), "c", call.Cancelled("enough")); err != nil {
		t.Fatal(err)
	}
	q := f.join(nil)
	f.work(q, 1, nil)
	f.await(q, refOf(both))
	f.awaitEmpty(q, queue.CallsStream, queue.ReadyStream)
	f.once(refOf(both))
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.starts[refOf(ended).Key]; n != 0 {
		t.Errorf("the call that had ended was started %d times", n)
	}
}

// TestACallThatCannotRunEnds has calls for which there is no worker: one waits
// too long, one is cancelled. Both are answered and leave the queue.
func TestACallThatCannotRunEnds(t *testing.T) {
	f := newFleet(t)
	p := f.join(nil)
	f.elected(p)
	late, unwanted := newJob("default", "tool", "late"), newJob("default", "tool", "unwanted")
	late.Expires = time.Now().Add(time.Second)
	for _, job := range []catalog.Job{late, unwanted} {
		f.submit(p, job)
	}
	if err := p.log.Cancel(t.Context(), refOf(unwanted), "enough"); err != nil {
		t.Fatal(err)
	}
	f.await(p, refOf(late), refOf(unwanted))
	for job, want := range map[*catalog.Job]call.Kind{&late: call.KindExpired, &unwanted: call.KindCancelled} {
		st, err := p.log.Look(t.Context(), refOf(*job))
		if err != nil || st.Result.Kind() != want {
			t.Errorf("%s ended as %s, want %s (%v)", job.Call.Scope, st.Result.Kind(), want, err)
		}
	}
	f.awaitEmpty(p, queue.CallsStream, queue.ReadyStream)
}

// TestALostJobIsScheduledAgain has a call that was admitted by a dispatcher that
// died before it queued it, and one whose job is lost from READY.
func TestALostJobIsScheduledAgain(t *testing.T) {
	f := newFleet(t)
	p := f.join(nil)
	f.elected(p)
	never := newJob("default", "tool", "never queued")
	if _, err := p.log.Admit(t.Context(), never); err != nil {
		t.Fatal(err)
	}
	lost := newJob("default", "tool", "lost")
	f.submit(p, lost)
	js, err := jetstream.New(p.nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{queue.CallsStream, queue.ReadyStream} { // wherever it is
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.work(p, 1, nil)
	f.await(p, refOf(never), refOf(lost))
	f.once(refOf(never), refOf(lost))
}

// TestASchedulerThatIsDeafReadsAnew has a call that waits and that the scheduler
// does not know of. When a keeper has seen that often enough, it runs.
func TestASchedulerThatIsDeafReadsAnew(t *testing.T) {
	f := newFleet(t)
	p := f.join(nil)
	f.elected(p)
	job := newJob("default", "tool", "unheard")
	ref := f.submit(p, job) // no worker: it waits
	for !keeper.Waits(p.scheduler, ref.Key) {
		if t.Context().Err() != nil {
			t.Fatal("it does not wait")
		}
	}
	keeper.Deafen(p.scheduler, ref.Key)
	f.work(p, 1, nil)
	k := &keeper.Keeper{Log: p.log, Queue: p.queue, Registry: p.registry, Scheduler: p.scheduler}
	u := results.Unfinished{Ref: ref, Tool: "tool", Admitted: job.Admitted, Pause: keeper.DoubtPause}
	if err := keeper.Visit(t.Context(), k, u, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	f.await(p, ref)
	f.once(ref)
}

// TestAnEndIsNoDoubt has a call that has ended when a keeper comes to it, and
// whose job is still there: the term goes on.
func TestAnEndIsNoDoubt(t *testing.T) {
	f := newFleet(t)
	p := f.join(nil)
	f.elected(p)
	ended := newJob("default", "tool", "ended")
	if _, err := p.log.Admit(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	if _, err := p.log.Finish(t.Context(), refOf(ended), "c", call.Cancelled("enough")); err != nil {
		t.Fatal(err)
	}
	if err := p.queue.Push(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	for !p.log.HasEnded(refOf(ended)) {
		if t.Context().Err() != nil {
			t.Fatal("the end is not told")
		}
	}
	keeper.OnDoubt(p.scheduler, func() { t.Error("the term was ended") })
	k := &keeper.Keeper{Log: p.log, Queue: p.queue, Registry: p.registry, Scheduler: p.scheduler}
	u := results.Unfinished{Ref: refOf(ended), Tool: "tool", Admitted: ended.Admitted, Pause: keeper.DoubtPause}
	if err := keeper.Visit(t.Context(), k, u, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
}
