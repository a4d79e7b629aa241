package worker

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/failpoint"
	"github.com/toolfleet/toolfleet/internal/tracing"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/worker/egress"
	"github.com/toolfleet/toolfleet/worker/secret"
)

// Sandboxes is where a worker takes its sandboxes from; [sandbox.Pool] is one.
type Sandboxes interface {
	// Take takes a warm sandbox or starts a cold one. It calls cold before it
	// starts one, and gives up with cold's error.
	Take(ctx context.Context, spec sandbox.Spec, cold func(context.Context) error) (sb *sandbox.Sandbox, warm bool, err error)
	// Release takes back a sandbox that Take handed out. Whether it serves
	// another call or is removed happens behind the caller's back.
	Release(sb *sandbox.Sandbox)
}

// Worker handles deliveries. Its fields are set before the first Handle and
// not changed after it. Handle may run in as many goroutines as there are
// slots.
type Worker struct {
	// Self is written into claims and starts.
	Self results.Worker
	// Log must follow cancels (see [results.Options]).
	Log *results.Log
	// Dead takes the letters of calls that end by a fault of ours; nil keeps
	// none.
	Dead      *queue.DeadLetters
	Blobs     *blob.Store
	Sandboxes Sandboxes
	// Alive tells whether the incarnation of a worker still beats;
	// [queue.Registry.Alive] is one.
	Alive func(ctx context.Context, id, incarnation string) (bool, error)
	// Secrets may be nil, which has none.
	Secrets *secret.Store
	// Egress is what tools with a network may reach; nil is the default.
	Egress *egress.Policy
	// Roots are the authorities that the certificates of hosts with injected
	// secrets are checked by; nil means the system's.
	Roots *x509.CertPool
	// Hooks may be empty.
	Hooks Hooks
	// Metrics and Tracer may be nil.
	Metrics *metrics.Metrics
	Tracer  *tracing.Tracer
	Logger  *slog.Logger

	// quiet is voiceQuiet, but in tests.
	quiet time.Duration

	mu sync.Mutex // guards active
	// active holds the calls that this process is running now. A start of
	// our own incarnation that is not among them is lost as surely as one of
	// a dead worker.
	active map[results.Ref]bool

	outputs outputSchemas
}

// The worker's own bounds.
const (
	// startTimeout bounds taking a sandbox: a cold start may pull an image.
	startTimeout = 2 * time.Minute
	// publishTimeout is how long a result is kept and offered to a log that
	// does not take it. After it the delivery goes back.
	publishTimeout = 10 * time.Minute
	// lookTimeout bounds each step that asks the log.
	lookTimeout = 30 * time.Second
	// busyPause is the pause before a delivery that somebody else is working
	// on is looked at again.
	busyPause = 3 * time.Second
)

// errGiveBack says that a delivery is to come again later.
type errGiveBack struct {
	after time.Duration
	cause error
}

func (e *errGiveBack) Error() string { return "worker: given back: " + e.cause.Error() }
func (e *errGiveBack) Unwrap() error { return e.cause }

func giveBack(after time.Duration, cause error) error { return &errGiveBack{after, cause} }

var (
	// errCancelled is the cause of a run's context when the call was cancelled.
	errCancelled = errors.New("worker: call cancelled")
	// errTimeout is its cause when the call's time is up.
	errTimeout = errors.New("worker: call timed out")
	// errLate is its cause when the log says that the call has ended without us.
	errLate = errors.New("worker: call was ended by another")
	errBusy = errors.New("worker: another worker has started the call")
	// errTouched gives a delivery back whose call was assumed to be untouched and
	// is not. It comes again as another than the first, and that one looks.
	errTouched = errors.New("worker: another worker has had the call")
)

// attempt is one delivery being worked on.
type attempt struct {
	*Worker
	job    *catalog.Job
	ref    results.Ref
	n      int
	began  time.Time
	queued time.Duration // from the admission to began
	first  bool          // whether this is the job's first delivery
	// assumed is true while the call is taken for untouched, and nobody has been
	// asked.
	assumed bool
	files   []sandbox.File // that the call brings
	// blobs counts those that were written.
	blobs   int
	logger  *slog.Logger
	span    *tracing.Span
	secrets secrets
	// cancelled is closed when the call is cancelled.
	cancelled <-chan struct{}
}

// Handle implements [queue.Handler].
func (w *Worker) Handle(ctx context.Context, d *queue.Delivery) {
	a := &attempt{
		Worker: w,
		job:    &d.Job,
		ref:    results.Ref{Tenant: d.Job.Call.Tenant, Key: d.Job.Call.Key()},
		began:  time.Now(),
		queued: max(0, w.Log.Now().Sub(d.Job.Admitted)),
		first:  d.Delivered == 1,
	}
	a.span = w.trace(a, d.Delivered)
	defer a.span.End()
	a.logger = a.span.Logger(w.Logger.With("call", string(a.ref.Key), "tool", d.Job.Call.Tool, "tenant", a.ref.Tenant))

	var stop func()
	a.cancelled, stop = w.Log.Cancelled(a.ref)
	defer stop()

	err := a.handle(ctx)

	// The acknowledgement must go out even when the worker is told to stop.
	ackCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	var back *errGiveBack
	switch {
	case errors.As(err, &back):
		a.span.Set(slog.Bool("toolfleet.given_back", true))
		a.logger.Info("delivery given back", "after", back.after, "reason", back.cause, "delivered", d.Delivered)
		err = d.Retry(ackCtx, back.after)
	case err != nil:
		a.span.Set(slog.Bool("toolfleet.given_back", true))
		a.logger.Error("delivery failed and is given back", "error", err, "delivered", d.Delivered)
		err = d.Retry(ackCtx, busyPause)
	default:
		failpoint.Hit(failpoint.Finished)
		err = d.Ack(ackCtx)
	}
	if err != nil {
		// The redelivery that follows finds the log and does the right thing.
		a.logger.Warn("delivery could not be acknowledged", "error", err)
	}
}

// handle works on the delivery to its end. A nil error means that there is
// nothing left to do: the call has its result.
func (a *attempt) handle(ctx context.Context) error {
	state, err := a.stands(ctx)
	switch {
	case errors.Is(err, results.ErrNotFound):
		// The log opens before the job is pushed, so it is older than the
		// log's horizon: nobody can be answered any more.
		a.logger.Warn("job without a log dropped")
		return nil
	case err != nil:
		return giveBack(busyPause, err)
	case state.Result != nil:
		return nil
	case state.Cancel != nil:
		return a.endUnrun(ctx, state, call.Cancelled(*state.Cancel))
	}
	switch expired, err := a.expired(ctx, state); {
	case err != nil:
		return giveBack(busyPause, err)
	case expired:
		return a.endUnrun(ctx, state, call.Expired(a.patience(), true))
	}
	if end, err := a.mayRun(ctx, state); err != nil || end {
		return err
	}

	if end, err := a.permitted(ctx, state); err != nil || end {
		return err
	}

	leave, entered := a.enter()
	if !entered {
		return giveBack(busyPause, errBusy)
	}
	defer leave()

	a.n = state.Claims + 1
	if a.n > call.MaxAttempts {
		return a.giveUp(ctx, call.Spent(call.MaxAttempts))
	}
	return a.run(ctx)
}

func (a *attempt) isCancelled() bool {
	select {
	case <-a.cancelled:
		return true
	default:
		return false
	}
}

// stands tells where the call stands. Nearly always nothing has happened to it
// yet, and to know that costs little, or nothing while the call is fresh.
func (a *attempt) stands(ctx context.Context) (results.State, error) {
	if a.first && !a.isCancelled() && a.Log.Fresh(a.job) {
		a.assumed = true
		return results.State{}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if untouched, err := a.Log.Untouched(bounded, a.job); untouched || err != nil {
		return results.State{}, err
	}
	return a.look(ctx)
}

func (a *attempt) look(ctx context.Context) (results.State, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return a.Log.Look(ctx, a.ref)
}

// patience is how long the call may wait for its start: a duration, since the
// dispatcher's clock is not ours.
func (a *attempt) patience() time.Duration { return a.job.Expires.Sub(a.job.Admitted) }

// expired reports whether a call that was never started has waited too long.
// When our clock says so the server is asked, which admitted the call by a
// clock of its own; when our clock is late the keeper does what is to be done.
func (a *attempt) expired(ctx context.Context, state results.State) (bool, error) {
	if state.Start != nil || a.job.Expires.IsZero() || time.Now().Before(a.job.Expires) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	age, err := a.Log.Age(ctx, a.ref)
	return age > a.patience(), err
}

// idempotent says whether the tool may be started again after a start.
func (a *attempt) idempotent() bool { return a.job.Spec.Annotations.Idempotent }

// mayRun looks at the start fence. It reports that the call has ended here, or
// returns an error that gives the delivery back.
func (a *attempt) mayRun(ctx context.Context, state results.State) (ended bool, err error) {
	switch {
	case state.Start == nil:
		return false, nil
	case state.Start.Void:
		// Whoever took the fence is about to publish a result; the keeper
		// does if it died.
		return false, giveBack(busyPause, errBusy)
	case a.idempotent():
		return false, nil
	}
	alive, err := a.runs(ctx, state.Start.Worker)
	if err != nil {
		return false, giveBack(busyPause, err)
	}
	if alive {
		return false, giveBack(busyPause, errBusy)
	}
	a.n = state.Start.Attempt
	return true, a.finish(ctx, call.Interrupted("the worker that ran it was lost"))
}

// runs tells whether w may still be running the call.
func (a *attempt) runs(ctx context.Context, w results.Worker) (bool, error) {
	if w == a.Self {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.active[a.ref], nil
	}
	return a.Alive(ctx, w.ID, w.Incarnation)
}

// enter notes that this process runs the call; leave is its end. entered is
// false when it does already: a heartbeat came late and the queue delivered
// the job to us a second time.
func (a *attempt) enter() (leave func(), entered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.active[a.ref] {
		return nil, false
	}
	if a.active == nil {
		a.active = map[results.Ref]bool{}
	}
	a.active[a.ref] = true
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.active, a.ref)
	}, true
}

// endUnrun ends a call that is not to be run. The start fence is taken first,
// so that no other worker starts it meanwhile.
func (a *attempt) endUnrun(ctx context.Context, state results.State, r call.Result) error {
	if state.Start == nil {
		switch ok, err := a.Log.Void(ctx, a.ref, a.Self, state.Claims); {
		case errors.Is(err, results.ErrEnded):
			return nil
		case err != nil:
			return giveBack(busyPause, err)
		case !ok:
			return giveBack(busyPause, errBusy)
		}
	}
	return a.finish(ctx, r)
}

// claim counts the attempt before a cold start, which may kill this worker or
// fail. An attempt with a warm sandbox has its start for a claim: that follows
// at once, and spares the log an entry.
//
// Here is the time to ask what a fresh call was spared: a claim has no fence,
// and an attempt that was counted under the number of another would be one more
// than a call may have.
func (a *attempt) claim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if a.assumed {
		switch untouched, err := a.Log.Untouched(ctx, a.job); {
		case err != nil:
			return giveBack(busyPause, err)
		case !untouched:
			return giveBack(0, errTouched)
		}
		a.assumed = false
	}
	switch err := a.Log.Claim(ctx, a.ref, a.Self, a.n); {
	case errors.Is(err, results.ErrEnded):
		a.lost(results.KindClaim)
		return giveBack(0, err)
	case err != nil:
		return giveBack(busyPause, err)
	}
	failpoint.Hit(failpoint.Claimed)
	return nil
}

// lost notes that an append of ours was refused because the call has ended: we
// were away for longer than our lease, and another has gone on.
func (a *attempt) lost(kind string) {
	a.logger.Warn("append dropped: the call was ended by another", "event", kind, "attempt", a.n)
	a.Metrics.AppendLost(kind)
}
