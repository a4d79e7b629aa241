package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// defaultOutputLimit bounds the stdout of a Process that names no limit.
const defaultOutputLimit = 1 << 20

// run is what is known of the one call of a sandbox. The reader fills it frame
// by frame; [Sandbox.Run] waits for its end and then closes it.
type run struct {
	sink    Sink
	limit   int64
	stream  uint32   // its number, once it began
	streams *streams // nil: nothing listens for it

	ended  chan struct{} // closed by the first end
	exited chan struct{} // closed when the agent said that the tool has ended
	fed    chan struct{} // closed when feed has returned
	// prepared says that the next cell was asked for; written before fed is closed.
	prepared bool
	more     chan struct{} // the reader puts one when the stdin window opens, and when a conversation may begin
	quiet    chan struct{} // of a conversation: closed when its stdin is; else nil

	mu        sync.Mutex // guards the fields below, and is held while sink is called
	closed    bool       // no more frames are taken
	first     ending     // valid once ended is closed
	isEnded   bool
	hasExited bool // exited is closed
	left      bool // the agent could not see all processes end
	doomed    bool // the agent was told to end it
	late      int  // bytes of output that came since
	credit    int  // bytes of stdin that may be sent
	began     time.Time
	over      time.Time
	stdout    []byte
	wrote     int64 // bytes of stdout that came, kept or not
	stderr    headTail
	result    []byte
	extra     int
	files     filesOut
}

// ending is what ended a run. One of exit, lost, unread and cause is set; exit beside
// cause is how a tool ended that was asked to.
type ending struct {
	exit   *wire.Exit // the tool ended, and the agent said so
	lost   error      // the stream ended or was broken before that
	unread error      // a file of the call could not be had
	cause  Cause      // this side ended it
	detail string
}

func newRun(p Process, sink Sink) *run {
	limit := p.OutputLimit
	if limit <= 0 {
		limit = defaultOutputLimit
	}
	r := &run{
		sink: sink, limit: limit, files: filesOut{limits: p.FilesOut, begin: sink.File}, credit: wire.StdinWindow,
		ended: make(chan struct{}), exited: make(chan struct{}), fed: make(chan struct{}), more: make(chan struct{}, 1),
	}
	if p.Input != nil {
		r.quiet = make(chan struct{})
	}
	return r
}

// end records what ended the run. Only the first counts: what comes after it is
// mostly its consequence.
func (r *run) end(e ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked(e)
}

func (r *run) endLocked(e ending) {
	if r.isEnded {
		return
	}
	r.isEnded, r.first, r.over = true, e, time.Now()
	close(r.ended)
}

// maxLate bounds what an agent may send of a tool that was killed: what was in
// its three pipes, each of which a tool can make a mebibyte large, and under way.
const maxLate = 4 << 20

// doom notes that the agent is told to end all of the run.
func (r *run) doom() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doomed, r.late = true, 0
}

// filed is how many bytes of files have come.
func (r *run) filed() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.files.taken
}

// isEmpty reports whether the agent has seen every process of the run end.
func (r *run) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasExited && !r.left
}

// stopped reports whether this side ended the run because its context did.
func (r *run) stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first.cause == CauseStopped
}

// isClosed reports whether the run is over and nothing is being sent for it.
func (r *run) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.fed:
		return r.closed
	default:
		return false
	}
}

// close makes the run take no more frames. When it returns, sink is not being
// called and will not be.
func (r *run) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// frame takes one frame of this run. An error is a broken rule. After the run
// was ended from this side, frames that were under way still count, so that
// nothing the tool wrote is lost.
func (r *run) frame(f wire.Frame) error {
	if f.Kind >= wire.KindOpen && f.Kind <= wire.KindReset {
		return r.streamFrame(f)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	if r.hasExited {
		return fmt.Errorf("%w: %v after the exit", wire.ErrFrame, f.Kind)
	}
	switch f.Kind {
	case wire.KindStdinCredit:
		return r.takeCredit(f)
	case wire.KindExit:
		return r.takeExit(f)
	case wire.KindStarted:
		if !r.began.IsZero() {
			return fmt.Errorf("%w: a second %v", wire.ErrFrame, f.Kind)
		}
		r.began = time.Now()
		r.wakeFeed()
		return nil
	}
	if r.began.IsZero() {
		return fmt.Errorf("%w: %v before the start", wire.ErrFrame, f.Kind)
	}
	if f.Kind == wire.KindFile {
		return r.files.take(f)
	}
	if r.late += len(f.Payload); r.doomed && r.late > maxLate {
		return fmt.Errorf("%w: more output than pipes can hold after the kill", wire.ErrFrame)
	}
	switch f.Kind {
	case wire.KindStdout:
		r.takeStdout(f.Payload)
	case wire.KindStderr:
		r.stderr.add(f.Payload)
		if r.sink.Stderr != nil {
			r.sink.Stderr(f.Payload)
		}
	case wire.KindMessage:
		r.takeMessage(f.Payload)
	default:
		return fmt.Errorf("%w: %v from an agent", wire.ErrFrame, f.Kind)
	}
	return nil
}

func (r *run) takeStdout(b []byte) {
	room := max(0, r.limit-r.wrote)
	r.wrote += int64(len(b))
	if int64(len(b)) > room {
		b = b[:room]
		r.endLocked(ending{cause: CauseOutputLimit, detail: fmt.Sprintf("it wrote more than %d bytes to stdout", r.limit)})
	}
	if r.sink.Stdout != nil {
		r.sink.Stdout(b)
		return
	}
	r.stdout = append(r.stdout, b...)
}

// updatePrefix is how updates begin that package tool and most others write.
var updatePrefix = []byte(`{"type":"update",`)

// takeMessage takes one line of the tool's fd 3. Only its type is looked at;
// the rest is for those who know what a result is. An update that is known by
// its beginning is not even parsed: a tool writes them faster than anybody
// reads JSON, most are never looked at, and it must not be this process that
// pays for them. The one that is looked at is read strictly then.
func (r *run) takeMessage(line []byte) {
	if bytes.HasPrefix(line, updatePrefix) {
		if r.sink.Update != nil {
			r.sink.Update(line)
		}
		return
	}
	var m struct {
		Type string `json:"type"`
	}
	err := json.Unmarshal(line, &m)
	switch {
	case err != nil:
		r.endLocked(ending{cause: CauseProtocol, detail: "it wrote a line to fd 3 that is not JSON"})
	case m.Type == "result" && r.result == nil:
		r.result = bytes.Clone(line)
	case m.Type == "result":
		r.extra++
	case m.Type != "update":
		r.endLocked(ending{cause: CauseProtocol, detail: "it wrote a message to fd 3 that is neither an update nor a result"})
	case r.sink.Update != nil:
		r.sink.Update(line)
	}
}

func (r *run) takeExit(f wire.Frame) error {
	var exit wire.Exit
	if err := wire.Decode(f, &exit); err != nil {
		return err
	}
	neverStarted := exit.NotStarted != "" || exit.Failed != ""
	if neverStarted != r.began.IsZero() || exit.Code < 0 || exit.Code > 255 || exit.Signal < 0 || exit.Signal > 64 {
		return fmt.Errorf("%w: %v that cannot be", wire.ErrFrame, f.Kind)
	}
	if r.isEnded && r.first.cause != "" {
		r.first.exit = &exit // it was being ended, and this is how it went
	}
	r.endLocked(ending{exit: &exit})
	r.hasExited, r.left = true, exit.Left
	close(r.exited)
	return nil
}

func (r *run) takeCredit(f wire.Frame) error {
	n, err := wire.DecodeCredit(f)
	if err != nil {
		return err
	}
	if r.credit+n > wire.StdinWindow {
		return fmt.Errorf("%w: %v for more than was sent", wire.ErrFrame, f.Kind)
	}
	r.credit += n
	r.wakeFeed()
	return nil
}

// wakeFeed has feed look again.
func (r *run) wakeFeed() {
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// window waits until some of n bytes of stdin may be sent, and takes their
// credit. It returns 0 once the run has ended.
func (r *run) window(n int) int {
	for {
		r.mu.Lock()
		n := min(n, r.credit)
		r.credit -= n
		r.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-r.more:
		case <-r.ended:
			return 0
		}
	}
}
