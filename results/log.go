package results

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
)

// MaxAge is the horizon of the log: admissions, starts and results are kept
// this long, and "one result, one start" holds within it.
const MaxAge = 7 * 24 * time.Hour

// Sentinels.
var (
	// ErrConflict says that the call is known with other arguments or another tool.
	ErrConflict = errors.New("results: same call, other arguments")
	// ErrNotFound says that there is no such log.
	ErrNotFound = errors.New("results: no such call")
	// ErrEnded says that the call has its result already; the append lost.
	ErrEnded = errors.New("results: the call has ended")
	// ErrFull says that the log takes no more of this kind of event.
	ErrFull = errors.New("results: the log is full")
	// ErrTooLarge says that an event is larger than a message may be. Trying
	// again does not help. It comes as a [TooLarge].
	ErrTooLarge = errors.New("results: event too large")
)

// TooLarge says by how much an event is too large.
type TooLarge struct {
	// Size and Limit are in bytes. The limit is ours or the server's max_payload,
	// whichever is smaller.
	Size, Limit int64
}

// Error implements error.
func (e *TooLarge) Error() string {
	return fmt.Sprintf("an event of %d bytes is over the limit of %d bytes", e.Size, e.Limit)
}

// Is makes it an ErrTooLarge.
func (e *TooLarge) Is(target error) bool { return target == ErrTooLarge }

// Ref names one call's log.
type Ref struct {
	Tenant string
	Key    call.Key
}

// Entry is one event of a log.
type Entry struct {
	Seq uint64
	// Kind is the last token of the subject: admit, state, progress, claim,
	// start, cancel or result.
	Kind string
	Time time.Time
	// Data is the AG-UI event, one JSON object.
	Data []byte

	ref Ref
}

// Worker is who appends: the id that lives in a file, and the incarnation,
// new with every start of the process.
type Worker struct {
	ID          string `json:"worker"`
	Incarnation string `json:"incarnation"`
}

// Log is the stream TOOLFLEET_EVENTS. It is safe for concurrent use.
//
// Every method that appends tries again when the server cannot be reached, for
// as long as its context allows: give it a deadline.
type Log struct {
	js     jetstream.JetStream
	server server
	opts   Options
	// start is the stream's last sequence when the log was opened: where
	// history ends and the shared follower begins.
	start uint64

	flights flights
	fill    fill
	fan     fanout
	index   index
	// mine is the sequence of the newest entry that this process appended.
	mine atomic.Uint64
	// poll is recheckPoll, but in tests.
	poll time.Duration
	// lookEvery is fillLook, but in tests.
	lookEvery time.Duration
	// running counts the Runs that are under way, for there may be none.
	running atomic.Int32
}

// Options of [Open].
type Options struct {
	// MaxBytes bounds the stream; 0 means 4 GiB.
	MaxBytes int64
	// Replicas is how many servers keep the stream; 0 means 1.
	Replicas int
	// Bind takes the stream as it is and needs no permission to make it; one
	// that is not there is an error. MaxBytes and Replicas mean nothing then.
	Bind bool
	// Kinds are the kinds of event that this process follows; nil means all.
	// A worker follows "cancel" only.
	Kinds []string
	// Log takes what the shared follower has to say; nil means nothing is said.
	Log *slog.Logger
}

// Open creates or checks the stream, or binds to it. Run must be running for
// Follow and Cancelled to work.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Log, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 30
	}
	o.Replicas = max(o.Replicas, 1)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	stream, err := openStream(ctx, js, o)
	if err != nil {
		return nil, fmt.Errorf("results: stream %s: %w", Stream, err)
	}
	info := stream.CachedInfo()
	if o.Bind {
		o.MaxBytes = info.Config.MaxBytes
	}
	l := &Log{js: js, server: newServer(js), opts: o, start: info.State.LastSeq, poll: recheckPoll, lookEvery: fillLook}
	l.fill = fill{stream: stream, max: o.MaxBytes}
	l.fill.set(info)
	l.fan.init(info.State.LastSeq, info.TimeStamp, l.followsAll())
	l.index.init(defaultIndexLimit)
	return l, nil
}

// followsAll reports whether the shared follower sees every entry.
func (l *Log) followsAll() bool { return l.opts.Kinds == nil }

// appended notes that this process's entry has that sequence.
func (l *Log) appended(seq uint64) {
	for {
		was := l.mine.Load()
		if seq <= was || l.mine.CompareAndSwap(was, seq) {
			return
		}
	}
}

// Where the log stops taking what, as parts of its bytes. The rest belongs to
// the calls that were taken in: their states and results must find room.
const (
	intakeLimit   = 0.8
	progressLimit = 0.9
	fillAge       = time.Second
)

// fillLook is how often the server is asked at the least, for its time: a clock
// of ours drifts from it by seconds a day.
const fillLook = 30 * time.Second

// fill knows how full the stream is, from a look that is at most a second old.
type fill struct {
	stream jetstream.Stream
	max    int64

	looking sync.Mutex // held by the one that asks the server
	last    atomic.Pointer[look]
}

// look is what the server said.
type look struct {
	bytes uint64
	// time is the server's, when it was at by ours. What has passed since at is
	// counted by a clock that nobody sets.
	time, at time.Time
}

func (f *fill) set(info *jetstream.StreamInfo) {
	f.last.Store(&look{bytes: info.State.Bytes, time: info.TimeStamp, at: time.Now()})
}

// over reports whether more than part of the stream is used. When the server
// cannot be asked the last answer stands: the append that follows will tell.
func (f *fill) over(ctx context.Context, part float64) bool {
	f.refresh(ctx, fillAge)
	return float64(f.last.Load().bytes) > part*float64(f.max)
}

// refresh asks the server when the last look is older than age, unless another
// asks already.
func (f *fill) refresh(ctx context.Context, age time.Duration) {
	if time.Since(f.last.Load().at) > age && f.looking.TryLock() {
		defer f.looking.Unlock()
		if info, err := f.stream.Info(ctx); err == nil {
			f.set(info)
		}
	}
}
