package keeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/failpoint"
	"github.com/toolfleet/toolfleet/internal/tracing"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// round is one step: what it asked once it does not ask again.
type round struct {
	*Keeper
	now   time.Time
	alive map[results.Worker]bool
	// classes are those that have a living worker; nil until asked.
	classes map[string]bool
}

// visit looks at one call and does what is to be done. It judges twice: first
// by the index, which costs little and is right nearly always that nothing is
// to be done, and then by the log, whose word decides.
func (r *round) visit(ctx context.Context, u results.Unfinished) error {
	f := facts{
		now: r.now, settle: r.settle, admitted: u.Admitted, expires: u.Expires, idempotent: u.Idempotent, refused: u.Refused,
		cancel: u.Cancel, start: u.Start, claims: u.Claims, claimed: u.Claimed,
	}
	if err := r.ask(ctx, &f, u.Class, u.ClaimedBy); err != nil {
		return err
	}
	// The queue is asked before the log. A worker publishes the result and
	// then acknowledges the job: a job that is gone, without a result in a
	// later look, was lost.
	queued, err := r.queued(ctx, u, f.alive)
	if err != nil {
		return err
	}
	f.queued = queued
	deed, _ := judge(f)
	r.schedule(u, deed, f)
	if deed == leave {
		return nil
	}
	st, err := r.Log.Look(ctx, u.Ref)
	switch {
	case errors.Is(err, results.ErrNotFound):
		return nil // older than the log's horizon: there is nobody to answer
	case err != nil:
		return err
	case st.Result != nil:
		return nil
	}
	f.refusal, f.refused = st.Job.Refusal, st.Job.Refusal != nil
	f.cancel, f.start, f.claims, f.claimed = st.Cancel, st.Start, st.Claims, st.Claimed
	if err := r.ask(ctx, &f, u.Class, st.ClaimedBy); err != nil {
		return err
	}
	deed, result := judge(f)
	return r.do(ctx, u.Ref, st, deed, result)
}

// schedule says when to look again: at the latest when a call that nobody has
// started has waited too long.
func (r *round) schedule(u results.Unfinished, d deed, f facts) {
	pause := min(max(2*u.Pause, shortPause), longPause)
	if d != leave || f.alive {
		pause = shortPause
	}
	at := r.now.Add(pause)
	if u.Start == nil && u.Expires.After(r.now) && u.Expires.Before(at) {
		at = u.Expires
	}
	r.Log.Later(u.Ref, at.Add(-r.settle), pause)
}

// queued says whether the job is in the queue. A refused call never was, and one
// that a living worker took is, unless that was long ago: a worker that gave it
// back lives on when the queue has lost it. What waits, the elected scheduler
// knows, so that a hundred thousand waiting calls are no questions to the
// server; for the keepers of other processes everything is queued, since a job
// that was lost is the business of the one who knows.
func (r *round) queued(ctx context.Context, u results.Unfinished, alive bool) (bool, error) {
	if u.Refused || alive && r.now.Sub(u.Claimed) < claimTime {
		return alive, nil
	}
	known := placed
	if r.Scheduler != nil {
		if known = r.Scheduler.standing(u.Key); known == inLine || known == elsewhere {
			return true, nil
		}
	}
	there, err := r.Queue.Has(ctx, queue.Address{Class: u.Class, Tenant: u.Tenant, Tool: u.Tool, Key: u.Key})
	if there && known == unheard && u.Pause >= doubtPause && !r.Log.HasEnded(u.Ref) { // it may have, just now
		r.Scheduler.doubt()
	}
	return there, err
}

// ask fills in what the registry knows of the workers.
func (r *round) ask(ctx context.Context, f *facts, class string, claimedBy results.Worker) (err error) {
	f.alive = false
	for _, w := range f.owners(claimedBy) {
		alive, err := r.isAlive(ctx, w)
		if err != nil {
			return err
		}
		f.alive = f.alive || alive
	}
	f.workers, err = r.hasWorkers(ctx, class)
	return err
}

func (r *round) isAlive(ctx context.Context, w results.Worker) (bool, error) {
	if alive, ok := r.alive[w]; ok {
		return alive, nil
	}
	alive, err := r.Registry.Alive(ctx, w.ID, w.Incarnation)
	if err == nil {
		r.alive[w] = alive
	}
	return alive, err
}

func (r *round) hasWorkers(ctx context.Context, class string) (bool, error) {
	if r.classes == nil {
		workers, err := r.Registry.List(ctx)
		if err != nil {
			return false, err
		}
		r.classes = map[string]bool{}
		for _, w := range workers {
			r.classes[classOf(w.Class)] = true
		}
	}
	return r.classes[classOf(class)], nil
}

func classOf(class string) string {
	if class == "" {
		return queue.DefaultClass
	}
	return class
}

// do does what was decided.
func (r *round) do(ctx context.Context, ref results.Ref, st results.State, d deed, result call.Result) error {
	switch d {
	case leave:
		return nil
	case push:
		return r.push(ctx, ref, st)
	case endUnrun:
		if ok, err := r.Log.Void(ctx, ref, results.Worker{}, st.Claims); err != nil || !ok {
			return err
		}
		failpoint.Hit(failpoint.Voided)
	}
	return r.end(ctx, ref, st, result)
}

func (r *round) push(ctx context.Context, ref results.Ref, st results.State) error {
	switch err := r.Queue.Enqueue(ctx, st.Job); {
	case errors.Is(err, queue.ErrWaiting):
		return nil
	case err != nil:
		return err
	}
	tracing.Logger(r.Logger, st.Job.Call.Traceparent).Info("job was in no queue and is queued again", "call", ref.Key, "tool", st.Job.Call.Tool, "tenant", ref.Tenant)
	return nil
}

func (r *round) end(ctx context.Context, ref results.Ref, st results.State, result call.Result) error {
	c := st.Job.Call
	result.CallID = c.ToolCallID
	if result.Error != nil && result.Error.Attempt == 0 {
		e := *result.Error
		e.Attempt = st.Claims
		result.Error = &e
	}
	won, err := r.finish(ctx, ref, st, result)
	if err != nil {
		return err
	}
	if won {
		tracing.Logger(r.Logger, c.Traceparent).Info("call ended by the keeper", "call", ref.Key, "tool", c.Tool, "tenant", ref.Tenant, "kind", result.Kind(), "attempts", st.Claims)
		r.count(st, result)
	}
	if st.Job.Spec == nil {
		return nil
	}
	if err := r.Queue.Remove(ctx, queue.AddressOf(st.Job)); err != nil {
		return fmt.Errorf("keeper: the job of an ended call: %w", err)
	}
	return nil
}

func (r *round) count(st results.State, result call.Result) {
	tool := ""
	if st.Job.Spec != nil {
		tool = st.Job.Spec.Name
	}
	r.Metrics.CallEnded(metrics.Ended{
		Tool: tool, Tenant: st.Job.Call.Tenant, Kind: string(result.Kind()), Status: string(result.Status()), Total: r.now.Sub(st.Job.Admitted),
		TraceID: tracing.Sampled(st.Job.Call.Traceparent),
	})
}
