package call

import "time"

// Attempt is one try of a worker at a call, as the call's log tells it: a claim,
// a start, or both.
type Attempt struct {
	// N counts from 1. Two attempts have the same number when one worker was
	// taken for dead and was not.
	N int `json:"attempt"`
	// Worker and Incarnation name the process that took the call.
	Worker      string    `json:"worker"`
	Incarnation string    `json:"incarnation"`
	Time        time.Time `json:"time"`
	// Started says that the start of the tool was written down. It may have run.
	Started bool `json:"started,omitempty"`
}
