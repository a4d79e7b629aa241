// Package faults holds the tests of what the parts of a fleet bear together: a
// NATS server that goes away and comes back, and dispatchers and workers that
// are restarted under load. It has no code of its own.
//
// All of it is real but for the sandboxes, which answer at once, so that some
// hundred calls fit into a test and what is tested is the rest. The fault
// harness (cmd/internal/chaos) does the same to real programs, with kill -9.
package faults
