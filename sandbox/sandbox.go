package sandbox

import (
	"context"
	"errors"
	"io"
	"time"
)

// Sentinels that runtimes wrap. Everything else that a runtime returns is an
// unclassified failure of ours.
var (
	// ErrImage says that the image is missing, forbidden or unreachable.
	ErrImage = errors.New("sandbox: image unavailable")
	// ErrUnavailable says that the runtime itself cannot be reached; a worker
	// that sees it takes no more work until it is back.
	ErrUnavailable = errors.New("sandbox: runtime unavailable")
	// ErrLost says that a sandbox was taken away from under its call, by no
	// doing of what runs in it: its shim has died.
	ErrLost = errors.New("sandbox: lost")
	// ErrNotFound says that there is no such sandbox.
	ErrNotFound = errors.New("sandbox: not found")
)

// Spec is everything that shapes a sandbox before it knows its call. Two calls
// whose specs are equal may be served from the same warm pool; the struct is
// comparable, so it is the pool's key.
type Spec struct {
	// Image is an OCI reference, as the tool's spec writes it.
	Image string
	// Pull is "missing" (the default), "always" or "never".
	Pull string
	// Runtime is the runtime handler: "runc", "runsc", …
	Runtime string
	// Isolation is "container" (also when empty) or "cell".
	Isolation string
	// Owner is whose cells these are, "tenant/tool". Cells share a container,
	// and a container belongs to one tool of one tenant. Empty for containers,
	// which serve one call each and so may be shared by all.
	Owner string
	// Secrets says that the sandbox has a place for the secret files of its call;
	// cells make theirs when they are asked to.
	Secrets bool
	Limits  Limits
}

// Limits bound one sandbox. Zero means the default, never unlimited; see
// [Limits.WithDefaults].
type Limits struct {
	// CPU is in cores.
	CPU float64
	// Memory is in bytes and without the tmpfs: the cgroup gets Memory+Disk,
	// since tmpfs pages are charged as memory.
	Memory int64
	// Disk is in bytes, over all writable places together.
	Disk int64
	// Pids counts processes and threads of the tool.
	Pids int64
}

// WithDefaults fills in what l leaves open: one processor, 256 MiB of memory,
// 64 MiB of disk, 64 processes.
func (l Limits) WithDefaults() Limits {
	if l.CPU <= 0 {
		l.CPU = 1
	}
	if l.Memory <= 0 {
		l.Memory = 256 << 20
	}
	if l.Disk <= 0 {
		l.Disk = 64 << 20
	}
	if l.Pids <= 0 {
		l.Pids = 64
	}
	return l
}

// Runtime makes isolated process trees. Implementations are safe for
// concurrent use and pass the suite in package sandboxtest.
type Runtime interface {
	// Name is the runtime's name in results and metrics, such as "runc".
	Name() string
	// Start makes the sandbox id and returns once its agent runs. id matches
	// [a-z0-9-]{1,64} and is unique on the host. A failed Start leaves
	// nothing behind. ctx bounds the start only, not the instance.
	Start(ctx context.Context, id string, spec Spec) (Instance, error)
	// List tells what this runtime has on this host that belongs to this
	// fleet, whoever made it.
	List(ctx context.Context) ([]Record, error)
	// Remove ends and removes a sandbox by id, whatever state it is in:
	// half-made, running, or dead. ErrNotFound when there is none.
	Remove(ctx context.Context, id string) error
}

// Record describes a sandbox that a runtime found.
type Record struct {
	ID string
	// Owner is the id of the worker that made it.
	Owner string
	// Created is when, Expires when anybody may remove it.
	Created, Expires time.Time
}

// Instance is one running sandbox: the byte stream to its agent, and its end.
// Read and Write may be used by one goroutine each; the other methods are safe
// for concurrent use.
type Instance interface {
	// Read and Write are the agent's stdout and stdin. Read returns io.EOF
	// once the agent is gone and all it wrote was read, and ErrLost when that
	// was none of its own doing, if the runtime can tell. The stream is not
	// buffered elsewhere: a reader that stalls, stalls the tool.
	io.ReadWriter
	// ID is the id given to Start.
	ID() string
	// Kill ends every process of the sandbox, sees that none is left, then
	// returns. It unblocks Read, once what was written before is read, and
	// Write. It may be called more than once.
	Kill(ctx context.Context) error
	// Usage reads the counters that tell how a tool ended. It works until
	// Close, also after Kill.
	Usage(ctx context.Context) (Usage, error)
	// Close kills the sandbox when it still runs and removes all of it. ctx
	// must have a deadline of its own and no cancellation from the call.
	Close(ctx context.Context) error
}

// Usage is what the kernel counted for one sandbox. A runtime that has no such
// counter leaves it 0.
type Usage struct {
	// OOMKills counts processes killed for memory.
	OOMKills int64
	// PidsRefused counts forks refused by the process limit.
	PidsRefused int64
	// PeakMemory is in bytes.
	PeakMemory int64
	// CPU is user and system time together.
	CPU time.Duration
}

// Process is one call's half of a sandbox: what to run, handed over after the
// start.
type Process struct {
	// Argv is never passed through a shell. Argv[0] is a path inside, or a
	// name to be looked for in PATH.
	Argv []string
	// Env holds "NAME=value", laid over what the image says; PATH, HOME and
	// TMPDIR are added when missing.
	Env []string
	// Secrets are files in /run/secrets that only the tool's user reads. The
	// sandbox's Spec has to have Secrets, unless it is one of cells.
	Secrets []SecretFile
	// Dir is the working directory; empty means /workspace.
	Dir string
	// User is "uid" or "uid:gid" inside, a lone uid being also the gid; empty
	// means 65532:65532.
	User string
	// Stdin is written, then closed.
	Stdin []byte
	// Input makes a conversation of it, when it is not nil: once the tool has
	// started, its pieces follow Stdin as they come, and stdin is closed when
	// Input is. A piece is taken when the one before was sent, and is the
	// sandbox's from then on; what is not taken when the tool ends, nobody
	// takes. So who sends must wait for the end of Run as well.
	Input <-chan []byte
	// Linger is how long a tool whose Input was closed may go on, before what is
	// left of it is killed and has the cause [CauseFinished]. 0 waits for its end.
	Linger time.Duration
	// OutputLimit bounds stdout, in bytes. More ends the call. 0 means 1 MiB.
	OutputLimit int64
	// Files are in /workspace/in when the tool starts, and its own. Without any
	// there is no such directory.
	Files []File
	// FilesOut asks for what the tool leaves in /workspace/out.
	FilesOut FilesOut
	// Listeners are what the tool finds on its loopback; none by default.
	Listeners Listeners
	// Grace is how long the tool has to end by itself after a SIGTERM when the
	// context of [Sandbox.Run] ends, before all of it is killed. 0 kills at
	// once.
	Grace time.Duration
}

// Cause says why a tool's run ended.
type Cause string

// The causes of an end.
const (
	CauseExited      Cause = "exited"        // by itself; see Code
	CauseSignaled    Cause = "signaled"      // by a signal that was not ours; see Signal
	CauseStopped     Cause = "stopped"       // by us, because the context ended
	CauseFinished    Cause = "finished"      // by us, since its Input had ended and it had not within Linger
	CauseOutOfMemory Cause = "out_of_memory" // the kernel killed for memory
	CausePidsLimit   Cause = "pids_limit"    // failed after forks were refused
	CauseDiskLimit   Cause = "disk_limit"    // failed with its disk full
	CauseOutputLimit Cause = "output_limit"  // wrote more than OutputLimit
	CauseProtocol    Cause = "protocol"      // junk on the agent's stream or on fd 3
	CauseNotStarted  Cause = "not_started"   // exec failed: no such file, not executable; see Detail
)

// Killer says who killed a tool that did not end by itself.
type Killer string

// The killers. The kernel keeps no sender of a signal, so they are told by
// what cannot be otherwise: this side knows what it killed, the counters of the
// cgroup know what memory killed, and nothing else can reach into a sandbox.
const (
	KilledByFleet  Killer = "fleet"  // this side: a stop, or a limit that ends the call
	KilledByKernel Killer = "kernel" // the out-of-memory killer
	KilledByTool   Killer = "tool"   // the tool itself: a crash, or a signal from inside its sandbox
)

// Exit tells how the tool ended and what it said. It is returned for every end
// of the tool, however ugly; an error beside it is a failure of ours.
type Exit struct {
	Cause  Cause
	Code   int
	Signal string
	// KilledBy is "" for a tool that ended by itself, and for one whose whole
	// sandbox was lost without a trace.
	KilledBy Killer
	// Met is the limit that the tool ran into (CauseOutOfMemory,
	// CausePidsLimit or CauseDiskLimit), or "". It is told beside a Cause of
	// exited with code 0 too: a tool that met a limit may have succeeded all
	// the same, or may say in its result that it failed.
	Met Cause
	// Detail is a sentence for people where Cause needs one.
	Detail string
	// Stdout holds at most OutputLimit bytes, the head, and nothing of what a
	// [Sink] took.
	Stdout []byte
	// Stderr holds at most 64 KiB: the head and the tail.
	Stderr []byte
	// StdoutBytes and StderrBytes are how much came, kept or not.
	StdoutBytes, StderrBytes int64
	// Result is the raw JSON of the result message from fd 3, or nil.
	Result []byte
	// ExtraResults counts result messages after the first, which are ignored.
	ExtraResults int
	// Truncated names the streams that lost bytes: "stdout", "stderr", "updates".
	Truncated []string
	// LeftOut names what was in /workspace/out and did not come: at most 20, and
	// LeftOutMore is how many others.
	LeftOut     []LeftOut
	LeftOutMore int
	// OutputHeld says that processes the tool left behind still held its
	// output when it ended. What they would have written is lost.
	OutputHeld bool
	Usage      Usage
	// Started is when the tool was started, Ended when its end was seen.
	Started, Ended time.Time
}

// Sink takes what a tool says while it runs. Its functions are called from
// one goroutine, in order, and must return quickly: a slow sink stalls the
// tool. The bytes are theirs until they return. Each may be nil.
type Sink struct {
	// Stdout takes a piece of stdout as it came, up to OutputLimit bytes in all.
	// It is for a conversation: what it takes, the Exit does not hold.
	Stdout func(piece []byte)
	// Stderr takes a piece of stderr as it came; pieces may split a rune.
	Stderr func(piece []byte)
	// Update takes one update message from fd 3. It may be no JSON: an update
	// that is known by how it begins is not parsed before somebody wants it.
	Update func(message []byte)
	// File takes a file of /workspace/out, after the tool has ended and before
	// Run returns: its path below that directory, and its size. The bytes are
	// written to what it returns, in order; nil drops them. A file that stays
	// short of its size was given up, and is in Exit.LeftOut. A slow writer
	// holds up the end of the call; one that blocks, its stop as well.
	File func(name string, size int64) io.Writer
}
