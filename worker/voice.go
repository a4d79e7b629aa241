package worker

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/tool"
	"github.com/toolfleet/toolfleet/worker/secret"
)

const (
	// voiceQuiet is how long a tool may say nothing before its call is said to
	// run. One that has ended by then never is: nobody would have seen it run,
	// and its result says all. It spares the log two of the five entries of a
	// warm call.
	voiceQuiet = 50 * time.Millisecond
	// voiceInterval is the shortest time between two progress events of one
	// call: at most ten a second.
	voiceInterval = 100 * time.Millisecond
	// tailMax is how much of the tool's output an activity shows.
	tailMax = 4 << 10
	// voiceTimeout bounds one append of progress; progress may be lost.
	voiceTimeout = 5 * time.Second
)

// voice publishes the progress of one run: the latest wins, so a tool that
// talks fast costs no more than one that talks ten times a second, and a log
// that is slow or away never slows the tool.
type voice struct {
	a       *attempt
	started time.Time
	clean   *secret.Stream // of stderr
	// late is called when the log says that the call has ended.
	late func()
	wake chan struct{}
	quit chan struct{}
	done chan struct{}

	mu      sync.Mutex // guards what was said and not told yet
	tail    []byte     // the end of stderr
	spoke   bool       // tail has changed
	message []byte     // the last update, or empty

	// Owned by the goroutine until it is done: what is published next, what
	// was published last, and the room for another message.
	next  call.Activity
	last  *call.Activity
	spare []byte
}

// newVoice begins with the status running, which is published when the tool says
// something or has not ended soon.
func (a *attempt) newVoice(ctx context.Context, started time.Time, late func()) *voice {
	v := &voice{
		a: a, started: started, late: late, clean: a.secrets.redact.Stream(),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
		next: call.Activity{
			ToolCallID: a.job.Call.ToolCallID, ToolName: a.job.Call.Tool,
			Status: call.StatusRunning, Attempt: a.n,
		},
	}
	// What is said about a run goes out to its end, also when it is stopped.
	go v.run(context.WithoutCancel(ctx))
	return v
}

// sink takes what the tool says. It never blocks, and only keeps it: a tool may
// say a thousand things between two events, and the last is the one that is
// read.
func (v *voice) sink() sandbox.Sink {
	return sandbox.Sink{Stderr: v.stderr, Update: v.update}
}

func (v *voice) stderr(piece []byte) {
	piece = v.clean.Write(piece)
	v.hear(func() {
		v.tail = append(v.tail, piece...)
		if cut := len(v.tail) - tailMax; cut > 0 {
			v.tail = append(v.tail[:0], v.tail[cut:]...)
		}
		v.spoke = true
	})
}

func (v *voice) update(message []byte) {
	v.hear(func() { v.message = append(v.message[:0], message...) })
}

// hear lets f keep something, and wakes the goroutine.
func (v *voice) hear(f func()) {
	v.mu.Lock()
	f()
	v.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// read puts what was said since it was last called into next. Where stderr and
// the text of an update came together, the text is shown.
func (v *voice) read() {
	v.mu.Lock()
	message := v.message
	v.message, v.spare = v.spare[:0], message
	if v.spoke {
		v.next.Output = strings.ToValidUTF8(string(v.tail), "")
	}
	v.spoke = false
	v.mu.Unlock()
	if len(message) == 0 {
		return
	}
	u, err := tool.DecodeUpdate(message)
	if err != nil {
		v.a.Metrics.ProgressDropped("malformed")
		return
	}
	if u.Current != 0 || u.Total != 0 || u.Message != "" {
		v.next.Progress = &call.Progress{Current: u.Current, Total: u.Total, Message: v.a.secrets.redact.String(u.Message)}
	}
	if text, _ := (agui.Content{Parts: u.Content}).Flatten(); text != "" {
		v.next.Output = tailOf(v.a.secrets.redact.String(text))
	}
}

// tailOf keeps the end of s, whole runes only.
func tailOf(s string) string {
	if len(s) <= tailMax {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-tailMax:], "")
}

// run publishes until close, first that the tool runs. The pause after each
// event is what bounds the rate; what is said during the pause waits in wake.
func (v *voice) run(ctx context.Context) {
	defer close(v.done)
	pause := time.NewTimer(cmp.Or(v.a.quiet, voiceQuiet))
	defer pause.Stop()
	select {
	case <-v.wake:
	case <-pause.C:
	case <-v.quit:
		return
	}
	for {
		v.publish(ctx)
		pause.Reset(voiceInterval)
		select {
		case <-pause.C:
		case <-v.quit:
			return
		}
		select {
		case <-v.wake:
		case <-v.quit:
			return
		}
	}
}

// publish appends how the call stands now.
func (v *voice) publish(ctx context.Context) {
	v.read()
	next := v.next
	next.ElapsedMs = time.Since(v.started).Milliseconds()
	if v.last != nil {
		next.Seq = v.last.Seq + 1
	}
	var ev agui.Event = next.Snapshot(v.a.ref.Key)
	if v.last != nil {
		if d, ok := next.Delta(v.a.ref.Key, *v.last); ok {
			ev = d
		}
	}
	ctx, cancel := context.WithTimeout(ctx, voiceTimeout)
	defer cancel()
	isState := v.last == nil || v.last.Status != next.Status
	err := v.a.Log.Progress(ctx, v.a.ref, ev, isState)
	if err == nil {
		v.last = &next
		return
	}
	// A lost event may have been the base of later deltas, so the next one is
	// a whole snapshot.
	v.last = nil
	switch {
	case errors.Is(err, results.ErrEnded):
		v.a.lost(results.KindProgress)
		v.late()
	case errors.Is(err, results.ErrFull):
		v.a.Metrics.ProgressDropped("full")
	default:
		v.a.Metrics.ProgressDropped("failed")
	}
}

// close ends the voice: what is still unsaid is published together with the
// end's status, then nothing more. The status alone is not: the result that
// follows has it. An empty status publishes nothing.
func (v *voice) close(ctx context.Context, end call.Status) {
	close(v.quit)
	<-v.done
	if rest := v.clean.Close(); len(rest) > 0 {
		v.clean = nil
		v.stderr(rest)
	}
	if end == "" || !v.unsaid() {
		return
	}
	v.next.Status = end
	v.publish(context.WithoutCancel(ctx))
}

// unsaid reports whether the tool has said something that is not in the log.
func (v *voice) unsaid() bool {
	v.read()
	var told call.Activity
	if v.last != nil {
		told = *v.last
	}
	return v.next.Output != told.Output || v.next.Progress != told.Progress
}
