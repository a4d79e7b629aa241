// Package mcp is the client of an MCP server that runs as the one tool of a
// sandbox: it starts the server, shakes hands with it over its stdin and stdout,
// asks it one thing ([Call]: run a tool, [List]: which tools it has), and ends
// it. The server is anybody's, unmodified, and hostile.
//
// The framing, the handshake and the types are the official SDK's, which is
// imported here and nowhere else in the fleet. Between the SDK and the server
// stands a connection of ours, since an SDK trusts its server more than we may:
// it would start a goroutine for each request of the server and keep a queue
// without an end. Ours refuses what a client may be asked for (a sampled message,
// a user's answer, the roots of a file system: a sandbox has none of these), takes
// the progress of the call until its answer, and leaves the rest out. The bytes
// of a whole conversation are bounded by the output limit of the sandbox.
//
// What the server answered, and what its end says when it did not, is put in the
// words of package sandbox ([sandbox.Exit]), so that whoever knows how a plain
// executable can end knows all of it.
package mcp
