// Package sandbox is the contract between the fleet and whatever isolates a
// tool: how a sandbox is started, spoken to, stopped and swept.
//
// A [Runtime] starts an [Instance]: a process tree with an agent as its first
// process, and a byte stream to that agent. Everything above the byte stream
// is the same for every runtime and lives here: [Sandbox] speaks the frames of
// package sandbox/wire, bounds what comes out, and tells how the tool ended;
// [Pool] keeps sandboxes started early.
//
// A container serves one call; a container of cells serves the calls of one tool
// of one tenant, and makes everything that a call can touch anew for each. Warm
// means started early, never cleaned and used again: what belongs to a call
// (argv, environment, arguments, files) arrives in frames after the start.
//
// Every byte from inside is hostile.
package sandbox
