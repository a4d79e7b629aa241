package catalog

import (
	"time"

	"github.com/toolfleet/toolfleet/call"
)

// Job is a checked call with the spec that it was checked against: what was
// validated is exactly what runs, whatever happens to the catalogue meanwhile.
// It opens the call's log (as its admission) and waits in the queue.
type Job struct {
	Version int       `json:"version"`
	Call    call.Call `json:"call"`
	// Spec is nil in the admission of a call to a tool that is not there.
	Spec       *Spec  `json:"spec,omitempty"`
	SpecDigest string `json:"specDigest,omitempty"`
	// Admitted is when the dispatcher took the call.
	Admitted time.Time `json:"admitted"`
	// Expires is when the call has waited too long.
	Expires time.Time `json:"expires"`
	// Refusal answers a call that was refused. Such a job never enters the
	// queue; it stands in the admission so that whoever finds the log without
	// a result (its dispatcher died between the two) can only give that answer
	// and never run what was refused.
	Refusal *call.Result `json:"refusal,omitempty"`
}
