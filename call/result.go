package call

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolfleet/toolfleet/agui"
)

// Result is the answer to a call: the only shape of a result in the project.
// Its JSON is snake_case, as in the native view and on a tool's fd 3; on the
// AG-UI wire it is the event that [Result.Event] makes.
type Result struct {
	CallID string `json:"call_id,omitempty"`
	// Content is what the tool answered, in order.
	Content []agui.Part `json:"content"`
	IsError bool        `json:"is_error"`
	// Extra holds parts that something other than the tool put there, such as
	// a [Reminder]. A failed result carries them too.
	Extra []agui.Part `json:"extra,omitempty"`
	// Error says how the call failed; set by the fleet on every error result.
	Error *Error `json:"error,omitempty"`
	// Execution says how the call was run; nil when it never ran.
	Execution *Execution `json:"execution,omitempty"`
	// Dropped says why parts that the tool sent are in neither list. It is for
	// the worker's log and does not travel.
	Dropped []string `json:"-"`
}

// MarshalJSON writes the result. The list of parts is never null: a reader in
// another language takes its length without a thought.
func (r Result) MarshalJSON() ([]byte, error) {
	if r.Content == nil {
		r.Content = []agui.Part{}
	}
	type plain Result
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // whether that is wanted is for the encoder around this one
	if err := enc.Encode(plain(r)); err != nil {
		return nil, fmt.Errorf("call: result: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Error is the machine's half of an error result; the readable half is in the
// content.
type Error struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
	// ExitCode is set when the tool exited by itself with a code other than 0.
	ExitCode *int `json:"exitCode,omitempty"`
	// Signal is the name of the signal that ended the tool, such as "SIGSEGV".
	Signal  string `json:"signal,omitempty"`
	Attempt int    `json:"attempt"`
	// Retryable says whether the same call may be worth another try.
	Retryable bool `json:"retryable"`
}

// Execution is what the fleet measured. Times are in milliseconds.
type Execution struct {
	Attempt int    `json:"attempt"`
	Sandbox string `json:"sandbox,omitempty"`
	Runtime string `json:"runtime,omitempty"`
	// QueuedMs is from admission to the claim, StartMs from the claim to the
	// start of the tool, RunMs from there to its end.
	QueuedMs        int64 `json:"queuedMs"`
	StartMs         int64 `json:"startMs"`
	RunMs           int64 `json:"runMs"`
	PeakMemoryBytes int64 `json:"peakMemoryBytes,omitempty"`
	// CPUMs is the processor time of the tool and all it started, user and
	// system together.
	CPUMs int64 `json:"cpuMs,omitempty"`
	// KilledBy says who killed a tool that did not end by itself: "fleet" (a
	// stop, or a limit that ends the call), "kernel" (out of memory) or "tool"
	// (a crash, or a signal from inside its own sandbox).
	KilledBy string `json:"killedBy,omitempty"`
	// StdoutBytes and StderrBytes are how much the tool wrote, kept or not.
	StdoutBytes int64 `json:"stdoutBytes,omitempty"`
	StderrBytes int64 `json:"stderrBytes,omitempty"`
	// Truncated names the streams that lost bytes, or is empty.
	Truncated []string `json:"truncated,omitempty"`
	// Files tells of what the tool left in /workspace/out, or is nil.
	Files *Files `json:"files,omitempty"`
	// RedriveOf is the call whose dead letter this one was made of, or empty.
	RedriveOf Key `json:"redriveOf,omitempty"`
	// Egress tells where the tool went, or wanted to go: at most 32 kinds of
	// connections, and EgressMore counts the others.
	Egress     []Egress `json:"egress,omitempty"`
	EgressMore int      `json:"egressMore,omitempty"`
}

// Egress is connections of one tool to one place that came out alike.
type Egress struct {
	// To is "host:port", or a name that was asked for in vain.
	To string `json:"to"`
	// Verdict is "connected"; "denied" by the tool's network, an address that no
	// tool may reach, or a limit; or "failed", when the other side could not be
	// reached. Reason says which.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
	Count   int    `json:"count"`
	// SentBytes and ReceivedBytes are what went through, as the tool sees it.
	SentBytes     int64 `json:"sentBytes,omitempty"`
	ReceivedBytes int64 `json:"receivedBytes,omitempty"`
}

// The metadata keys of a result event.
const (
	MetaError     = "toolfleet.error"
	MetaExecution = "toolfleet.execution"
	// MetaExtra is the number of parts at the end that are Extra.
	MetaExtra = "toolfleet.extra"
	// MetaReopened marks the result of a call that its agent opened again after
	// it had been started: the result is that of the arguments before.
	MetaReopened = "toolfleet.reopened"
	// MetaReminder marks a part made by [Reminder].
	MetaReminder = "toolfleet.reminder"
)

// Contents returns Content, then Extra appended after it.
func (r Result) Contents() []agui.Part {
	return append(append(make([]agui.Part, 0, len(r.Content)+len(r.Extra)), r.Content...), r.Extra...)
}

// Kind is the kind of an error result, or "" for success.
func (r Result) Kind() Kind {
	switch {
	case !r.IsError:
		return ""
	case r.Error == nil:
		return KindToolError
	}
	return r.Error.Kind
}

// Status is where the call stands with this result.
func (r Result) Status() Status { return EndOf(r.Kind()).Status }

// Reminder makes the usual Extra part: rules stapled to a result. Flattened
// text is joined with nothing between, so the reminder begins with a blank
// line.
func Reminder(text string) agui.Part {
	p := agui.Text("\n\n" + text)
	p.Metadata = json.RawMessage(`{"` + MetaReminder + `":true}`)
	return p
}

// Failure makes the error result of kind k. The sentence is for the model and
// for people; partial content produced so far stands before it.
func Failure(k Kind, sentence string, partial ...agui.Part) Result {
	text := sentence
	if len(partial) > 0 && !strings.HasPrefix(text, "\n") {
		text = "\n" + text
	}
	return Result{
		Content: append(append(make([]agui.Part, 0, len(partial)+1), partial...), agui.Text(text)),
		IsError: true,
		Error:   &Error{Kind: k, Message: sentence, Retryable: retryable(k)},
	}
}

// retryable says whether a caller may hope for another outcome. An interrupted
// call is not: its outcome is unknown and it may have done its work.
func retryable(k Kind) bool {
	switch k {
	case KindTimeout, KindExpired, KindQuotaExceeded, KindImageUnavailable, KindSandboxFailed, KindInternal:
		return true
	}
	return false
}

// Event makes the TOOL_CALL_RESULT that answers the call toolCallID with key
// k. The role is always "tool".
func (r Result) Event(k Key, toolCallID string) agui.ToolCallResult {
	ev := agui.ToolCallResult{
		MessageID:  k.ResultMessageID(),
		ToolCallID: toolCallID,
		Content:    agui.ContentOf(r.Contents()),
		Role:       "tool",
	}
	if r.Error != nil {
		ev.Metadata = ev.Metadata.Set(MetaError, r.Error)
	}
	if r.Execution != nil {
		ev.Metadata = ev.Metadata.Set(MetaExecution, r.Execution)
	}
	if len(r.Extra) > 0 {
		ev.Metadata = ev.Metadata.Set(MetaExtra, len(r.Extra))
	}
	return ev
}

// ResultOf reads back what [Result.Event] wrote.
func ResultOf(ev agui.ToolCallResult) (Result, error) {
	r := Result{CallID: ev.ToolCallID, Content: ev.Content.List()}
	var e Error
	if ok, err := ev.Metadata.Get(MetaError, &e); err != nil {
		return Result{}, err
	} else if ok {
		r.IsError, r.Error = true, &e
	}
	var x Execution
	if ok, err := ev.Metadata.Get(MetaExecution, &x); err != nil {
		return Result{}, err
	} else if ok {
		r.Execution = &x
	}
	var n int
	if ok, err := ev.Metadata.Get(MetaExtra, &n); err != nil {
		return Result{}, err
	} else if ok {
		if n < 0 || n > len(r.Content) {
			return Result{}, fmt.Errorf("call: result %s says %d extra parts of %d", ev.MessageID, n, len(r.Content))
		}
		r.Content, r.Extra = r.Content[:len(r.Content)-n], r.Content[len(r.Content)-n:]
	}
	return r, nil
}
