// Package wire is the language between a worker and the agent inside a
// sandbox: frames on the agent's stdin and stdout.
//
// A frame is a header of nine bytes, big-endian, and a payload:
//
//	length  uint32   of the payload alone, at most MaxPayload
//	kind    uint8    what the payload is, see [Kind]
//	stream  uint32   which run it belongs to; 0 is the connection itself
//	payload length bytes
//
// The conversation:
//
//	agent                      host
//	hello ────────────────────▶          once, first
//	      ◀──────────────────── ping     any number, while idle
//	pong  ────────────────────▶
//	      ◀──────────────────── prepare  cells only: the next stream's may be made,
//	                                     after the exit of the one that runs
//	      ◀──────────────────── secret … files that the tool alone may read
//	      ◀──────────────────── start    once per stream
//	      ◀──────────────────── file …   when the start says so, before the tool starts
//	started ──────────────────▶          the tool's exec succeeded
//	      ◀──────────────────── stdin …, stdin-close
//	stdin-credit ─────────────▶          so many bytes of stdin were taken
//	stdout, stderr, message ──▶          in any order
//	      ◀──────────────────── signal   SIGTERM asks the tool, SIGKILL ends it
//	file … ───────────────────▶          when the start asks for them: what the tool left
//	exit  ────────────────────▶          last; without started: no tool ran
//
// A sandbox that is a container runs one stream. One of cells runs many, one
// after the other and each under a new number: a start comes after the exit of
// the one before.
//
// An exit is sent when no process of the stream is left, so the host need not
// look.
//
// The host may have at most [StdinWindow] bytes of stdin under way that no
// credit answered. So the agent never stops reading its stdin for the sake of
// a tool that does not read its own, and sees at once when its host is gone;
// and the host never blocks in a write.
//
// Files need no credit on their way in: the agent writes each frame of them
// where it takes it, to memory, and before any tool runs.
//
// In the other direction the only flow control is the pipe: a host that stops
// reading stalls the agent, which stalls the tool. Nothing is dropped and
// nothing is buffered without a bound.
//
// Whatever comes from the agent's side may come from a hostile tool that broke
// out of its lock-down, so a reader trusts nothing: every kind has a size of
// its own, a kind it does not know is an error, and the first bad frame ends
// the connection. There is no resynchronising; skipping a bad frame would let
// the other side choose where the next one begins.
package wire
