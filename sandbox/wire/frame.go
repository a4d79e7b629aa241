package wire

import "strconv"

// Version is the version of this language. The agent names it in its hello; a
// host that speaks another one refuses the sandbox before anything was run. It
// changes with every new kind: an agent of before would end the connection at
// the first frame it does not know, and its tool would be blamed. 2 brought
// secrets, files and connections.
const Version = 2

// Sizes, in bytes.
const (
	// MaxPayload bounds every frame's payload.
	MaxPayload = 1 << 20
	// MaxChunk bounds a stdin, stdout or stderr payload.
	MaxChunk = 32 << 10
	// MaxMessage bounds one line that a tool writes to fd 3.
	MaxMessage = 512 << 10
	// StdinWindow bounds the stdin that no stdin-credit answered yet.
	StdinWindow = 256 << 10
	// HeaderSize is the size of a frame's header.
	HeaderSize = 9
)

// Kind says what a frame's payload is.
type Kind uint8

// The kinds of frames. Numbers are for ever: a kind that is given up leaves a
// hole.
const (
	KindHello       Kind = 1  // agent: JSON Hello
	KindPing        Kind = 2  // host: up to 8 bytes, which pong repeats
	KindPong        Kind = 3  // agent
	KindStart       Kind = 4  // host: JSON Start
	KindStarted     Kind = 5  // agent: JSON Started
	KindStdin       Kind = 6  // host: bytes for the tool's stdin
	KindStdinClose  Kind = 7  // host: empty; the tool's stdin ends here
	KindStdinCredit Kind = 8  // agent: uint32, so many bytes of stdin were taken
	KindStdout      Kind = 9  // agent: bytes of the tool's stdout
	KindStderr      Kind = 10 // agent: bytes of the tool's stderr
	KindMessage     Kind = 11 // agent: one line of the tool's fd 3, without its newline
	KindExit        Kind = 12 // agent: JSON Exit
	KindSignal      Kind = 13 // host: one byte, a signal for the tool; SIGKILL ends all that it started
	KindFile        Kind = 14 // both: a FileOp and what it says, of a file of the call
	KindSecret      Kind = 15 // host: JSON Secret, a file for the start that follows
	KindPrepare     Kind = 16 // host: JSON Cell; the cell of the stream may be made before its start

	// What streams of a tool's connections are made of, see [StreamWindow].
	KindOpen         Kind = 17 // agent: uint32, uint16; somebody connected to a listener
	KindData         Kind = 18 // both: uint32 and bytes
	KindStreamCredit Kind = 19 // both: uint32, uint32; so many bytes were taken
	KindEnd          Kind = 20 // both: uint32; no more data from this side
	KindReset        Kind = 21 // both: uint32; the stream is over
)

// kinds holds each kind's name and its largest payload.
var kinds = [...]struct {
	name string
	max  int
}{
	KindHello:       {"hello", 4 << 10},
	KindPing:        {"ping", 8},
	KindPong:        {"pong", 8},
	KindStart:       {"start", MaxPayload},
	KindStarted:     {"started", 4 << 10},
	KindStdin:       {"stdin", MaxChunk},
	KindStdinClose:  {"stdin-close", 0},
	KindStdinCredit: {"stdin-credit", 4},
	KindStdout:      {"stdout", MaxChunk},
	KindStderr:      {"stderr", MaxChunk},
	KindMessage:     {"message", MaxMessage},
	KindExit:        {"exit", 16 << 10},
	KindSignal:      {"signal", 1},
	KindFile:        {"file", MaxChunk},
	KindSecret:      {"secret", 64 << 10},
	KindPrepare:     {"prepare", 64 << 10},

	KindOpen:         {"open", StreamPrefix + 2},
	KindData:         {"data", MaxChunk},
	KindStreamCredit: {"stream-credit", StreamPrefix + 4},
	KindEnd:          {"end", StreamPrefix},
	KindReset:        {"reset", StreamPrefix},
}

// known reports whether k is a kind of this version.
func (k Kind) known() bool { return int(k) < len(kinds) && kinds[k].name != "" }

// String is the kind's name, or its number when it has none.
func (k Kind) String() string {
	if !k.known() {
		return "kind " + strconv.Itoa(int(k))
	}
	return kinds[k].name
}

// Frame is one frame. Payload belongs to the [Reader] that made it and is
// overwritten by its next one.
type Frame struct {
	Kind    Kind
	Stream  uint32
	Payload []byte
}
