package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/failpoint"
	"github.com/toolfleet/toolfleet/internal/tracing"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// Ticket names a call that was taken.
type Ticket struct {
	results.Ref
	// Call is the call as its log holds it. When the same call came before,
	// under another run id, it is the first one.
	Call call.Call
	// New is false when the call was known already.
	New bool

	// admitted is the call as it stood behind its admission.
	admitted results.State
}

// Submit takes a call: checks it, opens its log, queues the job. c.Arguments
// is the text that the model produced; c's version, digest and blob are set
// here. uploads are the files that it brings; without any, c.Files stand.
//
// A call that the fleet refuses (unknown tool, arguments that do not fit, over a
// quota) is taken all the same: its log holds the refusal, and the ticket leads
// to it. The same call again returns the same ticket and starts nothing.
//
// Errors: ErrMalformed, ErrConflict, ErrUnavailable (which may be ErrBusy),
// ErrFlood, and [results.TooLarge]. Once it has begun, Submit goes on when ctx is
// cancelled, so that a call is taken whole or not at all.
func (d *Dispatcher) Submit(ctx context.Context, c call.Call, uploads ...Upload) (t Ticket, err error) {
	began := time.Now()
	if d.Closed != nil {
		if err := d.Closed(); err != nil {
			return Ticket{}, &unavailable{busRetry, err}
		}
	}
	ctx, cancel := d.detach(ctx)
	defer cancel()

	if len(uploads) > 0 {
		if c.Files, uploads, err = d.describe(ctx, c, uploads); err != nil {
			return Ticket{}, err
		}
	}
	job, args, err := d.check(c)
	if err != nil {
		return Ticket{}, err
	}
	span := d.trace(&job, began)
	defer func() { endSpan(span, job, err) }()
	if err := d.room(ctx, job); err != nil {
		return Ticket{}, classify(ctx, err)
	}
	leave, err := d.quota(ctx, &job, args, uploaded(uploads))
	if err != nil {
		return Ticket{}, err
	}
	admitted := false
	defer func() {
		if !admitted {
			leave()
		}
	}()
	known, err := d.place(ctx, &job, args, uploads)
	if err != nil {
		return Ticket{}, classify(ctx, err)
	}
	if known != nil {
		return d.again(ctx, *known), nil
	}
	placed := time.Now()
	opened, err := d.Log.Admit(ctx, job)
	if err != nil {
		return Ticket{}, classify(ctx, err)
	}
	span.Step("admit", placed, time.Now())
	admitted = opened.New
	t = ticket(opened.Job, opened.New)
	t.admitted = results.State{Job: opened.Job, LastSeq: opened.Seq}
	if opened.New {
		d.Metrics.CallAdmitted(toolLabel(job))
	}
	failpoint.Hit(failpoint.Admitted)
	switch {
	case opened.Job.Refusal != nil:
		d.refuse(ctx, t, opened.Job)
	case opened.New:
		opening := time.Now()
		d.push(ctx, t, opened.Job)
		span.Step("push", opening, time.Now())
	default:
		return d.again(ctx, opened.Job), nil
	}
	return t, nil
}

// again is the ticket of a call that is known. Whoever admitted it may have died
// before the push: then a client that sends it again does not wait for the
// keeper to notice.
func (d *Dispatcher) again(ctx context.Context, job catalog.Job) Ticket {
	t := ticket(job, false)
	lost, err := d.Log.Untouched(ctx, &job)
	if err == nil && lost {
		var queued bool
		queued, err = d.Queue.Has(ctx, queue.AddressOf(job))
		lost = !queued
	}
	switch {
	case err != nil: // the keeper looks, too
		tracing.Logger(d.Logger, job.Call.Traceparent).Debug("whether a known call is queued could not be asked", "call", t.Key, "error", err)
	case lost:
		d.push(ctx, t, job)
	}
	return t
}

func ticket(job catalog.Job, isNew bool) Ticket {
	c := job.Call
	return Ticket{Ref: results.Ref{Tenant: c.Tenant, Key: c.Key()}, Call: c, New: isNew}
}

// check makes the job of a call, or says that it is malformed.
func (d *Dispatcher) check(c call.Call) (catalog.Job, string, error) {
	args := c.Arguments
	c.Version = call.Version
	c.ArgumentsBlob = ""
	c.ArgumentsDigest = call.Digest(args)
	if c.Priority == "" {
		c.Priority = call.PriorityInteractive
	}
	if err := c.Validate(); err != nil {
		return catalog.Job{}, "", malformed(err)
	}
	job, refusal := d.Catalog.Check(c, args, d.Log.Now())
	if refusal == nil {
		if err := job.Spec.CheckTimeout(c.Timeout); err != nil {
			return catalog.Job{}, "", malformed(err)
		}
	}
	job.Call = c
	job.Refusal = refusal
	return job, args, nil
}

// malformed lists the problems of err in one line.
func malformed(err error) error {
	return fmt.Errorf("%w: %s", ErrMalformed, strings.ReplaceAll(err.Error(), "\n", "; "))
}

// place decides where the argument text travels: inside the job, in a blob when
// it is too long for an event, or nowhere when the call is refused besides:
// nobody is going to read it, and no quota would count it before it is there.
// Files that have no blob get theirs, or none, in the same way.
//
// A blob is written once, so what needs one asks first whether the call is
// known: the job that is then returned is the one in the log.
func (d *Dispatcher) place(ctx context.Context, job *catalog.Job, args string, uploads []Upload) (known *catalog.Job, err error) {
	c := &job.Call
	c.Arguments = ""
	long := !fitsInline(args)
	if !long {
		c.Arguments = args
	}
	if !long && !brings(uploads) || job.Refusal != nil {
		return nil, nil
	}
	st, err := d.Log.Look(ctx, results.Ref{Tenant: c.Tenant, Key: c.Key()})
	switch {
	case err == nil && !st.Job.Call.Same(*c):
		return nil, ErrConflict
	case err == nil && st.Job.Refusal == nil:
		return &st.Job, nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return nil, err
	}
	if long {
		if c.ArgumentsBlob, err = d.keepArguments(ctx, c, args); err != nil {
			return nil, err
		}
	}
	return nil, d.keep(ctx, job, uploads)
}

func (d *Dispatcher) keepArguments(ctx context.Context, c *call.Call, args string) (ref string, err error) {
	id := blob.ID{Tenant: c.Tenant, Key: c.Key(), N: 0}
	switch _, err := d.Blobs.Put(ctx, id, "application/json", []byte(args)); {
	case errors.Is(err, blob.ErrOther):
		return "", ErrConflict // another submit of these ids was on its way
	case err != nil:
		return "", fmt.Errorf("dispatch: keep arguments: %w", err)
	}
	d.Metrics.BlobPut(int64(len(args)))
	return id.String(), nil
}

// fitsInline measures the text as it will stand in JSON, where a control
// character takes six bytes.
func fitsInline(args string) bool {
	if len(args) <= blob.InlinePart/6 {
		return true
	}
	if len(args) > blob.InlinePart {
		return false
	}
	encoded, err := json.Marshal(args)
	return err == nil && len(encoded) <= blob.InlinePart
}

// refuse answers a refused call. It is done again whenever the same call comes
// again, since the first dispatcher may have died before it: the log takes one
// result. A failure is not the caller's: the admission holds the answer and
// the keeper gives it.
func (d *Dispatcher) refuse(ctx context.Context, t Ticket, job catalog.Job) {
	won, err := d.Log.Finish(ctx, t.Ref, job.Call.ToolCallID, *job.Refusal)
	switch {
	case err != nil:
		tracing.Logger(d.Logger, job.Call.Traceparent).Warn("a refusal could not be published yet", "call", t.Key, "error", err)
	case won:
		d.ended(job, *job.Refusal)
	}
}

// push queues the job. A failure is not the caller's: the log is open, and the
// keeper pushes what waits in no queue.
func (d *Dispatcher) push(ctx context.Context, t Ticket, job catalog.Job) {
	push := d.Queue.Push
	if d.Scheduler != nil {
		push = d.Scheduler.Schedule
	}
	if err := push(ctx, job); err != nil && !errors.Is(err, queue.ErrWaiting) {
		tracing.Logger(d.Logger, job.Call.Traceparent).Warn("a call could not be queued yet", "call", t.Key, "tool", job.Spec.Name, "error", err)
	}
}

// ended counts a call that this dispatcher ended.
func (d *Dispatcher) ended(job catalog.Job, r call.Result) {
	d.Metrics.CallEnded(metrics.Ended{
		Tool: toolLabel(job), Tenant: job.Call.Tenant, Kind: string(r.Kind()), Status: string(r.Status()),
		Total: d.Log.Now().Sub(job.Admitted), TraceID: tracing.Sampled(job.Call.Traceparent),
	})
}

// toolLabel is the tool's name when the catalogue has it; what a caller made
// up is no label.
func toolLabel(job catalog.Job) string {
	if job.Spec == nil {
		return ""
	}
	return job.Spec.Name
}
