package client

import (
	"encoding/json"
	"time"

	"github.com/toolfleet/toolfleet/call"
)

// Letter is a dead letter, as the API shows it. A list has no Arguments and no
// Tries.
type Letter struct {
	ID         string    `json:"id"`
	ToolCallID string    `json:"toolCallId"`
	ThreadID   string    `json:"threadId"`
	RunID      string    `json:"runId"`
	Tool       string    `json:"tool"`
	Kind       call.Kind `json:"kind"`
	Message    string    `json:"message"`
	Attempts   int       `json:"attempts"`
	// Started says that the tool may have run.
	Started    bool           `json:"started"`
	Idempotent bool           `json:"idempotent"`
	Admitted   time.Time      `json:"admitted"`
	Filed      time.Time      `json:"filed"`
	Arguments  string         `json:"arguments"`
	Tries      []call.Attempt `json:"tries"`
}

// Letters is one page of a list of dead letters. Each is kept raw as well, for
// those who want all of it.
type Letters struct {
	Letters []json.RawMessage `json:"letters"`
	// Next asks for the next page; empty on the last.
	Next string `json:"next"`
}
