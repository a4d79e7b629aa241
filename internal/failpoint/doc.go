// Package failpoint names the moments at which a process may die to the
// greatest harm: between two writes that belong together. In a program built
// with the tag "failpoint" each is a place where the process can be made to
// die or to stall; in every other build [Hit] is an empty function, which the
// compiler takes out.
//
// The environment says what happens where. TOOLFLEET_FAILPOINT holds rules,
// separated by commas, each of a point, what to do and how often:
//
//	TOOLFLEET_FAILPOINT=admitted:exit:1in40,finished:sleep=8s:1in100
//
// exit ends the process as kill -9 does: nothing deferred runs. sleep holds
// the goroutine up. Which hits are struck is drawn from TOOLFLEET_FAILPOINT_SEED,
// for each point by itself.
package failpoint

// Point is a moment that a process can be made to die at.
type Point string

// The points, in the order in which a call passes them.
const (
	// Admitted: the log is open, the job is in no queue.
	Admitted Point = "admitted"
	// Pushed: the scheduler has put the job into READY and not yet taken it
	// from what waits.
	Pushed Point = "pushed"
	// Claimed: the attempt is counted, and nothing made for it yet.
	Claimed Point = "claimed"
	// Recorded: containerd knows a sandbox that has no file yet.
	Recorded Point = "recorded"
	// Mounted: the sandbox has its disk and its root, and no process.
	Mounted Point = "mounted"
	// Tasked: the sandbox has its first process, which waits to be started.
	Tasked Point = "tasked"
	// Started: the start fence is taken, the tool does not run.
	Started Point = "started"
	// Ran: the tool has ended, and nobody knows.
	Ran Point = "ran"
	// Buried: the dead letter is filed, the call has no result.
	Buried Point = "buried"
	// Finished: the result is in the log, the job in the queue.
	Finished Point = "finished"
	// Voided: a call that is not to run has its fence, and no result.
	Voided Point = "voided"
)

// Points are all points.
var Points = []Point{Admitted, Pushed, Claimed, Recorded, Mounted, Tasked, Started, Ran, Buried, Finished, Voided}
