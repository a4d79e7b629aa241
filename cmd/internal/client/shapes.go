package client

import (
	"encoding/json"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

// Call is where a call stands, as the API shows it.
type Call struct {
	ID         string      `json:"id"`
	ToolCallID string      `json:"toolCallId"`
	ThreadID   string      `json:"threadId"`
	RunID      string      `json:"runId"`
	Tool       string      `json:"tool"`
	Status     call.Status `json:"status"`
	Admitted   time.Time   `json:"admitted"`
	Ended      *time.Time  `json:"ended"`
	Attempts   int         `json:"attempts"`
	Cancelling bool        `json:"cancelling"`
	// Result is nil while the call has none.
	Result *struct {
		Content []agui.Part `json:"content"`
		IsError bool        `json:"isError"`
		Extra   []agui.Part `json:"extra"`
		Error   *call.Error `json:"error"`
	} `json:"result"`
}

// Kind is how the call failed, or "".
func (c *Call) Kind() call.Kind {
	if c.Result == nil {
		return ""
	}
	return call.Result{IsError: c.Result.IsError, Error: c.Result.Error}.Kind()
}

// Line is a call in a list.
type Line struct {
	ID       string      `json:"id"`
	Tool     string      `json:"tool"`
	Status   call.Status `json:"status"`
	Kind     call.Kind   `json:"kind"`
	Admitted time.Time   `json:"admitted"`
	Ended    *time.Time  `json:"ended"`
}

// Lines is one page of a list of calls. Each line is kept raw as well, for
// those who want all of it.
type Lines struct {
	Calls []json.RawMessage `json:"calls"`
	// Next asks for the next page; empty on the last.
	Next string `json:"next"`
}

// Tool is what a fleet tells about a tool.
type Tool struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Description string `json:"description"`
}

// Worker is a worker that is alive.
type Worker struct {
	ID       string    `json:"id"`
	Host     string    `json:"host"`
	Version  string    `json:"version"`
	Class    string    `json:"class"`
	Runtimes []string  `json:"runtimes"`
	Slots    int       `json:"slots"`
	Busy     int       `json:"busy"`
	Started  time.Time `json:"started"`
	// Beat is when its last heartbeat came, by the server's clock.
	Beat time.Time `json:"beat"`
}

// Catalogue is the fleet's tools as operators see them.
type Catalogue struct {
	Revision uint64            `json:"revision"`
	Tools    []json.RawMessage `json:"tools"` // of Served
	Faults   []struct {
		Source  string `json:"source"`
		Message string `json:"message"`
	} `json:"faults"`
}

// Served is a tool with where it comes from.
type Served struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"`
	Description string   `json:"description"`
	Source      string   `json:"source"`
	File        string   `json:"file"`
	Hides       bool     `json:"hides"`
	Digest      string   `json:"digest"`
	Tenants     []string `json:"tenants"`
}

// Declaration is the whole of a tool.
type Declaration struct {
	Source string          `json:"source"`
	Digest string          `json:"digest"`
	Spec   json.RawMessage `json:"spec"`
}

// Change asks for a change of the fleet's catalogue.
type Change struct {
	Tools      []json.RawMessage `json:"tools,omitempty"`
	Delete     []string          `json:"delete,omitempty"`
	Prune      bool              `json:"prune,omitempty"`
	DryRun     bool              `json:"dryRun,omitempty"`
	IfRevision *uint64           `json:"ifRevision,omitempty"`
}

// Changed is what a change did, or would do.
type Changed struct {
	Revision uint64 `json:"revision"`
	Steps    []struct {
		Name   string `json:"name"`
		Action string `json:"action"`
		Was    string `json:"was"`
		Hidden bool   `json:"hidden"`
	} `json:"steps"`
}
