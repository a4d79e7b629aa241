package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/internal/tracing"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// Sentinels. Everything else that a Dispatcher returns is a failure of ours or
// the caller's own context.
var (
	// ErrMalformed says that what was asked is no call at all. Its text lists
	// every problem and is safe to show to the caller.
	ErrMalformed = errors.New("dispatch: malformed call")
	// ErrConflict says that the same ids were used for another call.
	ErrConflict = results.ErrConflict
	// ErrNotFound says that there is no such call.
	ErrNotFound = results.ErrNotFound
	// ErrUnavailable says that the fleet as a whole cannot take the call or
	// answer now. [RetryAfter] tells when to ask again.
	ErrUnavailable = errors.New("dispatch: the fleet cannot take calls now")
	// ErrBusy is the ErrUnavailable of a fleet in which too many calls wait.
	ErrBusy = errors.New("dispatch: too many calls wait")
	// ErrFlood says that so many calls of the tenant were refused of late that
	// one more is not answered in a log. [RetryAfter] tells when it would be.
	ErrFlood = errors.New("dispatch: too many refused calls of one tenant")
)

// Catalog decides what a call is to the fleet. *catalog.Catalog is one.
type Catalog interface {
	// Check resolves the call's tool for its tenant and checks the argument
	// text. A nil result means that the job may run; otherwise the result
	// refuses the call.
	Check(c call.Call, args string, now time.Time) (catalog.Job, *call.Result)
}

// Scheduler decides when an admitted call runs. *keeper.Scheduler is one.
type Scheduler interface {
	// Schedule queues a job. queue.ErrWaiting when it is queued already.
	Schedule(ctx context.Context, job catalog.Job) error
}

// Dispatcher takes calls and follows them. All fields but Scheduler, Quotas,
// Timeout and Metrics must be set before its first use, and none changed
// afterwards; it is safe for concurrent use. Log.Run must be running for Follow
// and Wait to see anything.
type Dispatcher struct {
	Log   *results.Log
	Queue *queue.Queue
	// Scheduler queues what was admitted. nil means that every call may run at
	// once: it goes straight to the workers, first come, first served.
	Scheduler Scheduler
	Catalog   Catalog
	Blobs     *blob.Store
	// Quotas says whether a tenant may have one more call; nil means always.
	Quotas *Quotas
	// Timeout bounds what one submit or cancel does on the bus; 10 s by
	// default.
	Timeout time.Duration
	// MaxWaiting is how many calls the queues of the whole fleet may hold, those
	// that are being worked on among them; beyond it a new call is ErrBusy. 0 is
	// no limit but the queues' bytes.
	MaxWaiting int
	// Closed says why no calls are taken now, such as a stop that has begun;
	// nil, and a nil answer, mean that they are. Known calls can be followed
	// all the same.
	Closed func() error
	// Metrics and Tracer may be nil.
	Metrics *metrics.Metrics
	Tracer  *tracing.Tracer
	Logger  *slog.Logger
}

// detach gives a submit or cancel a context of its own: a client that goes
// away in the middle must not leave a call half taken.
func (d *Dispatcher) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := cmp.Or(d.Timeout, 10*time.Second)
	return context.WithTimeoutCause(context.WithoutCancel(ctx), timeout, fmt.Errorf("%w: no answer within %s", ErrUnavailable, timeout))
}

// unavailable is an ErrUnavailable with a hint.
type unavailable struct {
	after time.Duration
	err   error
}

func (u *unavailable) Error() string        { return ErrUnavailable.Error() + ": " + u.err.Error() }
func (u *unavailable) Unwrap() error        { return u.err }
func (u *unavailable) Is(target error) bool { return target == ErrUnavailable }

// RetryAfter is how long to wait before what failed with err is worth another
// try; 0 when err gives no hint.
func RetryAfter(err error) time.Duration {
	var u *unavailable
	var f *flood
	switch {
	case errors.As(err, &u):
		return u.after
	case errors.As(err, &f):
		return f.after
	case errors.Is(err, ErrUnavailable):
		return busRetry
	}
	return 0
}

const (
	// fullRetry is the hint when the log is full: something has to expire or
	// an operator has to make room.
	fullRetry = 30 * time.Second
	// busRetry is the hint when the bus does not answer: it usually comes
	// back within seconds.
	busRetry = 5 * time.Second
)

// classify sorts an error of the log or of what else is on the bus, met under
// ctx. Sentinels pass. When ctx is done that is the reason, by its cause: the
// bus only says that somebody stopped waiting. A full log and a bus that does
// not answer are ErrUnavailable.
func classify(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, ErrConflict), errors.Is(err, ErrNotFound), errors.Is(err, results.ErrEnded), errors.Is(err, ErrUnavailable), errors.Is(err, results.ErrTooLarge):
		return err
	case errors.Is(err, results.ErrFull):
		return &unavailable{fullRetry, err}
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("dispatch: the log ended without a result: %w", io.ErrUnexpectedEOF)
	}
	return &unavailable{busRetry, err}
}
