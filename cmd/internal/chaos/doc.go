// Package chaos runs a real fleet, does to it everything that it promises to
// bear, and looks whether it kept its promises.
//
// The fleet is what an operator would run, each part in a process of its own:
// three NATS servers that replicate every stream, two dispatchers, three workers
// with a containerd each, real sandboxes. Calls of tools that may be repeated
// and of tools that may not are made at a steady pace, and beside them, at times
// drawn from a seed, processes are killed, stopped past their lease, cut off
// from the network, and denied a disk. The same seed makes the same calls and
// the same schedule of faults; what a fault meets depends on the moment, as it
// does everywhere.
//
// What is verified rests on two witnesses, neither of which is the fleet's own
// opinion. The log is read from its stream, message by message. And a ledger
// outside of the sandboxes, in which the tools themselves note that they began
// and that they came to their end, says how often a call has run: see
// sandbox/containerd/chaos.go, which only the binaries of this harness have.
package chaos
