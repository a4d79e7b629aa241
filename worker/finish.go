package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/tracing"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/results"
)

// finish publishes the result. It goes on when the worker is told to stop and
// while the log is away: the result is the one thing that is never dropped.
func (a *attempt) finish(ctx context.Context, r call.Result) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	r.CallID = a.job.Call.ToolCallID
	if r.Error != nil && r.Error.Attempt == 0 {
		r.Error.Attempt = a.n
	}
	r = a.fit(ctx, a.amended(ctx, a.secrets.result(r)))
	published := time.Now()
	a.span.Set(slog.Int64("toolfleet.attempt", int64(a.n)))
	if kind := r.Kind(); kind != "" {
		a.span.Fail(string(kind))
	}
	won, err := a.publish(ctx, r)
	if errors.Is(err, results.ErrTooLarge) {
		// Only a server whose max_payload is smaller than the fleet needs says so.
		a.logger.Error("the result cannot be published and is replaced", "error", err)
		r = a.undeliverable(r)
		won, err = a.publish(ctx, r)
	}
	if err != nil {
		return giveBack(busyPause, err)
	}
	a.step("publish", published)
	if !won {
		a.logger.Info("result dropped: the call has one already", "kind", r.Kind())
		a.Metrics.ResultDropped()
		return nil
	}
	ended := metrics.Ended{
		Tool: a.job.Call.Tool, Tenant: a.job.Call.Tenant, Kind: string(r.Kind()), Status: string(r.Status()),
		Publish: time.Since(published), Total: a.queued + time.Since(a.began),
		TraceID: tracing.Sampled(a.job.Call.Traceparent),
	}
	if x := r.Execution; x != nil {
		ended.Queue = time.Duration(x.QueuedMs) * time.Millisecond
		ended.Start = time.Duration(x.StartMs) * time.Millisecond
		ended.Run = time.Duration(x.RunMs) * time.Millisecond
		ended.Stdout, ended.Stderr, ended.Truncated = x.StdoutBytes, x.StderrBytes, x.Truncated
	}
	a.Metrics.CallEnded(ended)
	return nil
}

// undeliverable stands for a result that no message can hold.
func (a *attempt) undeliverable(r call.Result) call.Result {
	u := call.Failure(call.KindInternal, "The tool has run, and its result is larger than the fleet can deliver.")
	u.CallID, u.Execution, u.Error.Attempt = r.CallID, r.Execution, a.n
	return u
}
