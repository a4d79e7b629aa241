package call

import (
	"encoding/json"
	"fmt"

	"github.com/toolfleet/toolfleet/agui"
)

// ActivityType is the activityType of a call's progress.
const ActivityType = "toolfleet.tool-execution"

// Activity is the content of a call's progress activity. It is cumulative: the
// last one tells all.
type Activity struct {
	ToolCallID string `json:"toolCallId"`
	ToolName   string `json:"toolName"`
	Status     Status `json:"status"`
	Attempt    int    `json:"attempt"`
	// Seq grows by one with every activity event of an attempt.
	Seq      int       `json:"seq"`
	Progress *Progress `json:"progress,omitempty"`
	// Output is the tail of what the tool said so far, at most 4 KiB.
	Output    string `json:"output,omitempty"`
	ElapsedMs int64  `json:"elapsedMs"`
}

// Progress is what a tool says of how far it is.
type Progress struct {
	Current float64 `json:"current"`
	// Total is 0 when it is not known.
	Total   float64 `json:"total,omitempty"`
	Message string  `json:"message,omitempty"`
}

// Snapshot makes the event that shows the whole activity.
func (a Activity) Snapshot(k Key) agui.ActivitySnapshot {
	return agui.ActivitySnapshot{MessageID: k.ActivityMessageID(), ActivityType: ActivityType, Content: mustJSON(a)}
}

// Delta makes the event that turns prev into a. Only "add" is used, which also
// replaces, so a delta can be applied to any snapshot of the same call; a
// member that went away needs a snapshot, and Delta reports false then.
func (a Activity) Delta(k Key, prev Activity) (agui.ActivityDelta, bool) {
	var was, is map[string]json.RawMessage
	mustUnmarshal(mustJSON(prev), &was)
	mustUnmarshal(mustJSON(a), &is)
	d := agui.ActivityDelta{MessageID: k.ActivityMessageID(), ActivityType: ActivityType, Patch: []agui.PatchOp{}}
	for _, name := range [...]string{"toolCallId", "toolName", "status", "attempt", "seq", "progress", "output", "elapsedMs"} {
		now, has := is[name]
		old, had := was[name]
		switch {
		case had && !has:
			return agui.ActivityDelta{}, false
		case has && string(now) != string(old):
			d.Patch = append(d.Patch, agui.PatchOp{Op: "add", Path: "/" + name, Value: now})
		}
	}
	return d, true
}

// Apply changes a by a delta that [Activity.Delta] made.
func (a *Activity) Apply(d agui.ActivityDelta) error {
	var m map[string]json.RawMessage
	mustUnmarshal(mustJSON(*a), &m)
	for _, op := range d.Patch {
		if op.Op != "add" || len(op.Path) < 2 {
			return fmt.Errorf("call: activity patch %q %q is not ours", op.Op, op.Path)
		}
		m[op.Path[1:]] = op.Value
	}
	var next Activity
	if err := json.Unmarshal(mustJSON(m), &next); err != nil {
		return fmt.Errorf("call: activity patch: %w", err)
	}
	*a = next
	return nil
}

// mustJSON encodes values of ours, which always can be.
func mustJSON(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("call: %v", err))
	}
	return raw
}

func mustUnmarshal(raw []byte, v any) {
	if err := json.Unmarshal(raw, v); err != nil {
		panic(fmt.Sprintf("call: %v", err))
	}
}
