package worker

import (
	"context"
	"errors"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/failpoint"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/sandbox"
)

// execute runs the tool in sb, releases sb, and publishes how it ended.
func (a *attempt) execute(ctx context.Context, sb *sandbox.Sandbox, args []byte) error {
	spec, timeout := a.job.Spec, a.timeout()
	runCtx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	runCtx, watch := a.watchCancel(runCtx)
	defer watch()
	runCtx, late := context.WithCancelCause(runCtx)
	defer late(nil)

	started := time.Now()
	voice := a.newVoice(ctx, started, func() { late(errLate) })
	files := &files{a: a, ctx: ctx}
	network := a.network()
	defer network.close()
	sb, exit, reply, err := a.speak(runCtx, sb, a.process(args, network), files.sink(voice.sink()))
	cause := context.Cause(runCtx) // as it was when the tool ended
	a.step("run", started)
	defer a.Sandboxes.Release(sb)
	exit = a.secrets.exit(spec, exit)
	execution := a.execution(sb, exit, started)
	network.report(execution)
	switch {
	case errors.Is(cause, errLate):
		voice.close(ctx, "")
		a.logger.Warn("run stopped: the call was ended by another")
		return nil
	case err != nil:
		voice.close(ctx, "")
		return a.failed(ctx, true, call.KindSandboxFailed, err)
	case exit.Cause == sandbox.CauseStopped && errors.Is(cause, queue.ErrDraining):
		voice.close(ctx, "")
		if a.idempotent() {
			return giveBack(0, cause)
		}
		r := call.Interrupted("the worker that ran it was stopped", partial(exit)...)
		r.Execution = execution
		return a.finish(ctx, files.add(r, exit))
	default:
		r := foreign(a.outputs.hold(spec, outcome(spec, exit, reply, cause, timeout)), args)
		r.Execution = execution
		if len(r.Dropped) > 0 {
			a.logger.Warn("parts that no client may see were dropped from the tool's result", "parts", r.Dropped)
		}
		voice.close(ctx, r.Status())
		failpoint.Hit(failpoint.Ran)
		return a.finish(ctx, files.add(r, exit))
	}
}

// timeout is the caller's, where that is shorter than the tool's own.
func (a *attempt) timeout() time.Duration {
	timeout := time.Duration(a.job.Spec.Limits.Timeout)
	if t := a.job.Call.Timeout; t > 0 {
		timeout = min(timeout, t)
	}
	return timeout
}

// process is the call's half of its sandbox: all that it brings.
func (a *attempt) process(args []byte, n network) sandbox.Process {
	spec := a.job.Spec
	return sandbox.Process{
		Argv:        spec.Command,
		Env:         slices.Concat(n.env(), environ(spec, a.job.Call), a.secrets.env),
		Dir:         spec.Workdir,
		User:        spec.User,
		Secrets:     a.secrets.files,
		Stdin:       args,
		OutputLimit: int64(spec.Limits.Output),
		Grace:       time.Duration(spec.Limits.Grace),
		Files:       a.files,
		FilesOut:    spec.FilesOut(),
		Listeners:   n.listeners(),
	}
}

// execution is what the result tells about how the tool ran.
func (a *attempt) execution(sb *sandbox.Sandbox, exit sandbox.Exit, started time.Time) *call.Execution {
	return &call.Execution{
		Attempt:         a.n,
		Sandbox:         sb.ID(),
		Runtime:         sb.Runtime(),
		QueuedMs:        a.queued.Milliseconds(),
		StartMs:         started.Sub(a.began).Milliseconds(),
		RunMs:           time.Since(started).Milliseconds(),
		PeakMemoryBytes: exit.Usage.PeakMemory,
		CPUMs:           exit.Usage.CPU.Milliseconds(),
		KilledBy:        string(exit.KilledBy),
		StdoutBytes:     exit.StdoutBytes,
		StderrBytes:     exit.StderrBytes,
		Truncated:       exit.Truncated,
		RedriveOf:       a.job.Call.RedriveOf,
	}
}

// environ is the tool's environment: the spec's, the processors it may use, and
// the call's identity. A Go program would look for its limit in its cgroup,
// which a sandbox does not show, and start a thread for each processor of the
// machine; a spec that says otherwise has it its way.
func environ(spec *catalog.Spec, c call.Call) []string {
	out := make([]string, 0, len(spec.Env)+3)
	for k, v := range spec.Env {
		out = append(out, k+"="+v)
	}
	if _, set := spec.Env[maxProcs]; !set && spec.Limits.CPU > 0 {
		out = append(out, maxProcs+"="+strconv.Itoa(int(math.Ceil(spec.Limits.CPU))))
	}
	sort.Strings(out)
	return append(out, "TOOLFLEET_CALL_ID="+c.ToolCallID, "TOOLFLEET_TOOL="+c.Tool)
}

// maxProcs tells Go how many threads may run at once.
const maxProcs = "GOMAXPROCS"
