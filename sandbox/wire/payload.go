package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// Where a tool finds its writable places, unless the runtime gave the agent
// others. A runtime mounts a sized tmpfs at each of them.
const (
	DirWorkspace = "/workspace" // also the working directory
	DirHome      = "/home/tool"
	DirTmp       = "/tmp"
)

// Where the files of a call are, below the workspace.
const (
	DirIn  = "in"  // there when the call brings files
	DirOut = "out" // there when the tool starts; what is in it when it ends is sent
)

// Inodes is how many files a disk of size bytes may hold: a million empty files
// fill no page but cost the kernel memory.
func Inodes(size int64) int64 { return max(1024, size/4096) }

// ToolUser is the user and the group of a tool that asks for none.
const ToolUser = 65532

// Hello is the first frame of an agent.
type Hello struct {
	// Version is the version of this language the agent speaks.
	Version int `json:"version"`
	// Build names the agent's build, for people who compare machines.
	Build string `json:"build,omitempty"`
	// PID is the agent's own in its pid namespace: 1 in a real sandbox.
	PID int `json:"pid"`
	// UID is the agent's user. Only an agent with user 0 can give the tool
	// another one.
	UID int `json:"uid"`
	// GID is the agent's group.
	GID int `json:"gid"`
}

// Start says what to run, and how locked down.
type Start struct {
	// Argv is the program and its arguments. A program without a slash is
	// looked for in the tool's PATH.
	Argv []string `json:"argv"`
	// Env holds NAME=value. It is laid over the agent's own environment,
	// which is what the image says.
	Env []string `json:"env,omitempty"`
	// Dir is the working directory; empty means the workspace.
	Dir string `json:"dir,omitempty"`
	UID int    `json:"uid"`
	GID int    `json:"gid"`
	// Seccomp is a compiled filter: an array of struct sock_filter in the
	// machine's byte order. Empty loads none, or in a cell the one that came
	// with a prepare.
	Seccomp []byte `json:"seccomp,omitempty"`
	// Rlimits are set before the tool starts.
	Rlimits []Rlimit `json:"rlimits,omitempty"`
	// Listen is where the agent listens for the tool, see [Listener].
	Listen []Listener `json:"listen,omitempty"`
	// OOMScoreAdj is the tool's, from -1000 to 1000.
	OOMScoreAdj int `json:"oomScoreAdj"`
	// Files says that files follow, and the tool starts behind their end.
	Files bool `json:"files,omitempty"`
	// Out asks for what the tool leaves in its outgoing directory.
	Out *Out `json:"out,omitempty"`
}

// Cell says what the next cell is like. Everything else that a cell needs is
// the same for all of them and known to the agent.
type Cell struct {
	// Disk is the size of all its writable places together, in bytes.
	Disk int64 `json:"disk"`
	// Seccomp is the filter of the tools in this and all later cells, as in
	// Start. It comes once, so that it need not be read for every call.
	Seccomp []byte `json:"seccomp,omitempty"`
}

// Rlimit is one resource limit.
type Rlimit struct {
	// Resource is the kernel's number, such as RLIMIT_NOFILE.
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// Started says that the tool's exec succeeded: from here on it may have done
// something.
type Started struct {
	// PID is the tool's, in the agent's pid namespace.
	PID int `json:"pid"`
}

// Exit says how the tool ended.
type Exit struct {
	// Code is the exit code, when Signal is 0.
	Code int `json:"code"`
	// Signal is the number of the signal that ended the tool.
	Signal int `json:"signal,omitempty"`
	// NotStarted is a sentence for people about an exec that failed: no such
	// file, not executable. The tool's author has to mend it.
	NotStarted string `json:"notStarted,omitempty"`
	// Failed is a sentence about a lock-down or a set-up that failed. The
	// fleet's operator has to mend it.
	Failed string `json:"failed,omitempty"`
	// Held says that other processes still held the tool's stdout, stderr or
	// fd 3 when it ended. What they wrote later is lost.
	Held bool `json:"held,omitempty"`
	// Left says that processes which the tool left behind were told to die and
	// not seen to. Without it, the agent has seen all of them end.
	Left bool `json:"left,omitempty"`
	// LongMessage says that a line on fd 3 was longer than MaxMessage. It and
	// all later lines were dropped.
	LongMessage bool `json:"longMessage,omitempty"`
	// DiskFull says that a writable place had no bytes or no inodes left.
	DiskFull bool `json:"diskFull,omitempty"`
}

// Decode reads the JSON payload of a frame into v.
func Decode(f Frame, v any) error {
	if err := json.Unmarshal(f.Payload, v); err != nil {
		return fmt.Errorf("%w: %v: %w", ErrFrame, f.Kind, err)
	}
	return nil
}

// Credit is the payload of a stdin-credit frame for n bytes.
func Credit(n int) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(n))
}

// DecodeCredit reads a stdin-credit frame.
func DecodeCredit(f Frame) (int, error) {
	if len(f.Payload) != 4 {
		return 0, fmt.Errorf("%w: %v of %d bytes", ErrFrame, f.Kind, len(f.Payload))
	}
	n := binary.BigEndian.Uint32(f.Payload)
	if n > StdinWindow {
		return 0, fmt.Errorf("%w: %v for %d bytes, more than the window", ErrFrame, f.Kind, n)
	}
	return int(n), nil
}
