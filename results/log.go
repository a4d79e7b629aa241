package results

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
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
)

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
}

// Event decodes the entry.
func (e Entry) Event() (agui.Event, error) { panic("unwritten") }

// Worker is who appends: the id that lives in a file, and the incarnation,
// new with every start of the process.
type Worker struct {
	ID          string `json:"worker"`
	Incarnation string `json:"incarnation"`
}

// Log is the stream TOOLFLEET_EVENTS. It is safe for concurrent use.
type Log struct{}

// Options of [Open].
type Options struct {
	// MaxBytes bounds the stream; 0 means 4 GiB.
	MaxBytes int64
	// Kinds are the kinds of event that this process follows; nil means all.
	// A worker follows "cancel" only.
	Kinds []string
}

// Open creates or checks the stream. Run must be running for Follow and
// Cancelled to work.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Log, error) { panic("unwritten") }

// Run is the shared follower: one ordered consumer, fanned out. It returns
// when ctx is done.
func (l *Log) Run(ctx context.Context) error { panic("unwritten") }

// Opened is what [Log.Admit] found or made.
type Opened struct {
	Seq uint64
	// New is false when the log was there already; Job is the one in the log.
	New bool
	Job catalog.Job
}

// Admit opens the log of job.Call. The same call again finds its log; with
// other arguments or another tool it fails with ErrConflict. ErrFull above
// 80 % of the stream.
func (l *Log) Admit(ctx context.Context, job catalog.Job) (Opened, error) { panic("unwritten") }

// Marker is the start event's content.
type Marker struct {
	Worker
	Attempt int `json:"attempt"`
	// Void is set when the call was ended without a run.
	Void bool      `json:"void,omitempty"`
	Time time.Time `json:"-"`
}

// State is where a call stands, read back from its log in one look.
type State struct {
	Job catalog.Job
	// Claims is the number of the last claim, 0 for none.
	Claims int
	Start  *Marker
	// Cancel is the reason of a cancel, nil when there was none.
	Cancel *string
	Result *call.Result
	// LastSeq is the sequence of the last event of the log.
	LastSeq uint64
}

// Look reads a call's state. ErrNotFound when there is no log.
func (l *Log) Look(ctx context.Context, ref Ref) (State, error) { panic("unwritten") }

// Claim counts an attempt: n is the last claim plus one. ErrEnded when the
// call has ended.
func (l *Log) Claim(ctx context.Context, ref Ref, w Worker, n int) error { panic("unwritten") }

// Start takes the start fence for m. When another start is in the log it
// returns that one with won false; Again appends a later start of an
// idempotent tool, with the guard alone.
func (l *Log) Start(ctx context.Context, ref Ref, m Marker) (won bool, other *Marker, err error) {
	panic("unwritten")
}

// StartAgain appends a start behind another one. Only for idempotent tools,
// and for those whose earlier start is void of effect.
func (l *Log) StartAgain(ctx context.Context, ref Ref, m Marker) error { panic("unwritten") }

// Progress appends an activity event without waiting for more than one in
// flight per call; state is true for changes of status, which outrank
// progress when the log fills up. ErrEnded when the call has ended: the
// caller is late and must stop.
func (l *Log) Progress(ctx context.Context, ref Ref, ev agui.Event, state bool) error {
	panic("unwritten")
}

// Finish appends the result. The first one wins; won is false when another's
// result is in the log already.
func (l *Log) Finish(ctx context.Context, ref Ref, toolCallID string, r call.Result) (won bool, err error) {
	panic("unwritten")
}

// Cancel asks for a call's end. ErrEnded when it has ended, ErrNotFound when
// there is no log.
func (l *Log) Cancel(ctx context.Context, ref Ref, reason string) error { panic("unwritten") }

// Cancelled returns a channel that is closed when a cancel for ref arrives
// after the call to Cancelled, and a function that ends the watch. Look after
// calling it, so that no cancel falls between.
func (l *Log) Cancelled(ref Ref) (ch <-chan struct{}, stop func()) { panic("unwritten") }

// Follower yields the entries of one log in order, without gaps or doubles.
type Follower struct{}

// Follow begins after sequence after (0 is from the beginning). Entries that
// the follower is too slow for are fetched again from the stream, so a slow
// reader costs itself only. Stop must be called.
func (l *Log) Follow(ctx context.Context, ref Ref, after uint64) (*Follower, error) {
	panic("unwritten")
}

// Next waits for the next entry. After the result it returns io.EOF.
func (f *Follower) Next(ctx context.Context) (Entry, error) { panic("unwritten") }

// Stop ends the follower.
func (f *Follower) Stop() { panic("unwritten") }

// Summary is one line of a list.
type Summary struct {
	Ref
	Tool       string
	ThreadID   string
	ToolCallID string
	Status     call.Status
	Kind       call.Kind
	Admitted   time.Time
	Ended      time.Time
	// Cursor continues a list after this line.
	Cursor uint64
}

// ListOptions filter and page a list.
type ListOptions struct {
	Tool   string
	Status call.Status
	// Before continues after a line with this cursor; 0 begins at the newest.
	Before uint64
	// Limit is at most 1000; 0 means 100.
	Limit int
}

// List lists a tenant's calls, newest first.
func (l *Log) List(ctx context.Context, tenant string, o ListOptions) ([]Summary, error) {
	panic("unwritten")
}
