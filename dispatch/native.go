package dispatch

import (
	"encoding/json"
	"fmt"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

// The types of the native events.
const (
	NativeStart  = "tool_execution_start"
	NativeUpdate = "tool_execution_update"
	NativeEnd    = "tool_execution_end"
)

// NativeEvent is one event of the native view, snake_case as agent programs in
// Go know it. Per call: one start, updates, one end.
type NativeEvent struct {
	// Type is one of the Native constants.
	Type       string `json:"type"`
	ToolCallID string `json:"tool_call_id"`
	ToolName   string `json:"tool_name"`
	// Args is the arguments as JSON; text that is no JSON travels as a string.
	// Only on start.
	Args json.RawMessage `json:"args,omitempty"`
	// PartialResult is what the tool said so far; it replaces the one before.
	// Only on update.
	PartialResult *call.Result `json:"partial_result,omitempty"`
	// Result and IsError are always there on end, and only there.
	Result  *call.Result `json:"result,omitempty"`
	IsError *bool        `json:"is_error,omitempty"`
}

// MetaActivity is the metadata key of an update's part: how far the tool is.
const MetaActivity = "toolfleet.activity"

// Native turns the AG-UI events of one run, as [Run] or an HTTP stream yields
// them, into native events. The zero value is ready for use; it belongs to one
// goroutine. A resumed run may be fed to the same Native: what was shown is
// not shown again.
type Native struct {
	id, name string
	args     []byte
	activity call.Activity
	shown    string // the last update, to leave out those that tell nothing new
	started  bool
	ended    bool
}

// Convert takes the next event. It reports false when the event shows nothing
// in the native view.
func (n *Native) Convert(ev agui.Event) (NativeEvent, bool, error) {
	switch ev := ev.(type) {
	case agui.ToolCallStart:
		n.id, n.name, n.args = ev.ToolCallID, ev.ToolCallName, nil
	case agui.ToolCallArgs:
		if len(n.args)+len(ev.Delta) > call.MaxArguments {
			return NativeEvent{}, false, fmt.Errorf("dispatch: arguments are longer than %d bytes", call.MaxArguments)
		}
		n.args = append(n.args, ev.Delta...)
	case agui.ToolCallEnd:
		if n.started {
			return NativeEvent{}, false, nil
		}
		n.started = true
		e := n.event(NativeStart)
		e.Args = jsonText(n.args)
		return e, true, nil
	case agui.ActivitySnapshot:
		if ev.ActivityType != call.ActivityType {
			return NativeEvent{}, false, nil
		}
		n.activity = call.Activity{}
		if err := json.Unmarshal(ev.Content, &n.activity); err != nil {
			return NativeEvent{}, false, fmt.Errorf("dispatch: activity: %w", err)
		}
		return n.update()
	case agui.ActivityDelta:
		if ev.ActivityType != call.ActivityType {
			return NativeEvent{}, false, nil
		}
		if err := n.activity.Apply(ev); err != nil {
			return NativeEvent{}, false, err
		}
		return n.update()
	case agui.ToolCallResult:
		return n.end(ev)
	}
	return NativeEvent{}, false, nil
}

func (n *Native) event(typ string) NativeEvent {
	return NativeEvent{Type: typ, ToolCallID: n.id, ToolName: n.name}
}

// update shows the activity when the tool has said something new. A change of
// status alone is the fleet's and not the tool's.
func (n *Native) update() (NativeEvent, bool, error) {
	a := n.activity
	if a.Output == "" && a.Progress == nil {
		return NativeEvent{}, false, nil
	}
	said, err := json.Marshal(struct {
		Output   string
		Progress *call.Progress
	}{a.Output, a.Progress})
	if err != nil {
		return NativeEvent{}, false, fmt.Errorf("dispatch: activity: %w", err)
	}
	if n.ended || string(said) == n.shown {
		return NativeEvent{}, false, nil
	}
	n.shown = string(said)

	part := agui.Text(a.Output)
	a.Output = ""
	meta, err := json.Marshal(map[string]call.Activity{MetaActivity: a})
	if err != nil {
		return NativeEvent{}, false, fmt.Errorf("dispatch: activity: %w", err)
	}
	part.Metadata = meta
	e := n.event(NativeUpdate)
	e.PartialResult = &call.Result{CallID: n.id, Content: []agui.Part{part}}
	return e, true, nil
}

func (n *Native) end(ev agui.ToolCallResult) (NativeEvent, bool, error) {
	if n.ended {
		return NativeEvent{}, false, nil
	}
	r, err := call.ResultOf(ev)
	if err != nil {
		return NativeEvent{}, false, err
	}
	if r.Content == nil {
		r.Content = []agui.Part{} // [] and not null
	}
	n.ended = true
	e := n.event(NativeEnd)
	e.Result, e.IsError = &r, &r.IsError
	return e, true, nil
}

// jsonText returns text as JSON: itself when it is JSON, else as a string.
func jsonText(text []byte) json.RawMessage {
	if json.Valid(text) {
		return text
	}
	s, err := json.Marshal(string(text))
	if err != nil {
		return json.RawMessage(`""`)
	}
	return s
}
