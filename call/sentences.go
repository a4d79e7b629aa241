package call

import (
	"fmt"
	"time"

	"github.com/toolfleet/toolfleet/agui"
)

// MaxAttempts is how often a call is claimed before the fleet gives up.
const MaxAttempts = 3

// The sentences below are read by models as well as by people, so each says
// what happened, whether the tool may have done its work, and what can be done.

// Cancelled is the result of a call that was cancelled; reason may be empty.
func Cancelled(reason string, partial ...agui.Part) Result {
	s := "The call was cancelled."
	if reason != "" {
		s = "The call was cancelled: " + clip(reason, 200)
	}
	return Failure(KindCancelled, s, partial...)
}

// Expired is the result of a call that waited too long. workers says whether
// any worker that could have taken it was alive.
func Expired(waited time.Duration, workers bool) Result {
	s := fmt.Sprintf("The call waited %s for a worker and was given up; the tool was not run. ", waited.Round(time.Second))
	if workers {
		s += "All workers were busy: try again later."
	} else {
		s += "No worker that can run it is alive: its operator has to start one."
	}
	return Failure(KindExpired, s)
}

// Interrupted is the result of a call whose tool was started, may not be
// started again, and was lost. why is a clause such as "its worker was lost".
func Interrupted(why string, partial ...agui.Part) Result {
	return Failure(KindInterrupted, "The call was interrupted: "+why+". Whether the tool did its work is unknown, and it was not run again because it is not declared idempotent. Check its effect before you call it again.", partial...)
}

// Spent is the result of a call that was claimed n times and never ended: each
// time the worker was lost or the sandbox failed.
func Spent(n int) Result {
	return Failure(KindSandboxFailed, fmt.Sprintf("The call was given up after %d attempts: each time its worker or its sandbox was lost.", n))
}
