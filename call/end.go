package call

// Kind says how a call ended when it did not succeed. The set is closed: the
// table [Ends] is used by metadata, metrics, documentation and tests alike.
type Kind string

// The kinds of an error result.
const (
	KindToolError        Kind = "tool_error"
	KindCrashed          Kind = "crashed"
	KindTimeout          Kind = "timeout"
	KindCancelled        Kind = "cancelled"
	KindOutOfMemory      Kind = "out_of_memory"
	KindPidsLimit        Kind = "pids_limit"
	KindDiskLimit        Kind = "disk_limit"
	KindOutputLimit      Kind = "output_limit"
	KindInvalidArguments Kind = "invalid_arguments"
	KindUnknownTool      Kind = "unknown_tool"
	KindDeclined         Kind = "declined"
	KindQuotaExceeded    Kind = "quota_exceeded"
	KindExpired          Kind = "expired"
	KindInterrupted      Kind = "interrupted"
	KindImageUnavailable Kind = "image_unavailable"
	KindSandboxFailed    Kind = "sandbox_failed"
	KindInternal         Kind = "internal"
)

// Status is where a call stands.
type Status string

// The statuses of a call. The first three are on the way, the rest are ends.
const (
	StatusQueued      Status = "queued"
	StatusStarting    Status = "starting"
	StatusRunning     Status = "running"
	StatusSucceeded   Status = "succeeded"
	StatusFailed      Status = "failed"
	StatusTimedOut    Status = "timed_out"
	StatusCancelled   Status = "cancelled"
	StatusRefused     Status = "refused"
	StatusInterrupted Status = "interrupted"
)

// Ended reports whether s is an end.
func (s Status) Ended() bool {
	switch s {
	case StatusQueued, StatusStarting, StatusRunning, "":
		return false
	}
	return true
}

// End is one row of the table of how a call can end.
type End struct {
	// Cause is a phrase for people.
	Cause string
	Kind  Kind
	// Status is what the call's activity and list entry show.
	Status Status
	// Retried says whether the fleet itself tries again before it answers.
	Retried bool
	// Dead says whether the call is kept as a dead letter, too: it ended by a
	// fault of ours, so somebody may want to make it again.
	Dead bool
}

// Ends is the closed table of how a call can end, success first.
var Ends = []End{
	{"tool succeeded", "", StatusSucceeded, false, false},
	{"tool said error, or non-zero exit", KindToolError, StatusFailed, false, false},
	{"killed by a signal that was not ours, or junk on the protocol", KindCrashed, StatusFailed, false, false},
	{"deadline", KindTimeout, StatusTimedOut, false, false},
	{"cancelled", KindCancelled, StatusCancelled, false, false},
	{"memory limit", KindOutOfMemory, StatusFailed, false, false},
	{"process limit", KindPidsLimit, StatusFailed, false, false},
	{"disk limit", KindDiskLimit, StatusFailed, false, false},
	{"output limit", KindOutputLimit, StatusFailed, false, false},
	{"arguments are not JSON, break the schema, or are too long", KindInvalidArguments, StatusRefused, false, false},
	{"no such tool", KindUnknownTool, StatusRefused, false, false},
	{"consent missing or declined", KindDeclined, StatusRefused, false, false},
	{"over the tenant's quota", KindQuotaExceeded, StatusRefused, false, false},
	{"waited too long", KindExpired, StatusFailed, false, false},
	{"worker lost after a start that may not be repeated", KindInterrupted, StatusInterrupted, false, false},
	{"image missing, forbidden or unreachable", KindImageUnavailable, StatusFailed, true, false},
	{"our failure around the sandbox", KindSandboxFailed, StatusFailed, true, true},
	{"any other failure of ours", KindInternal, StatusFailed, true, true},
}

// EndOf returns the row for k; "" is success. An unknown kind, which only a
// newer peer can have sent, reads as internal.
func EndOf(k Kind) End {
	for _, e := range Ends {
		if e.Kind == k {
			return e
		}
	}
	return Ends[len(Ends)-1]
}
