// Package queue is the listener and server of the fleet: the JetStream work
// queues that hold waiting and ready calls, and the slots that take them.
//
// A job waits in CALLS until the scheduler (package keeper) promotes it to READY,
// where there is only what may run now. Workers know READY alone: one consumer
// over everything that waits would be first in, first out, and giving back
// what may not run yet would burn attempts and block others.
//
// A slot takes one delivery at a time and keeps it alive by a heartbeat; a
// worker that dies loses its deliveries after the ack wait, and somebody else
// gets them. The queue does not promise that a job runs once: the log does
// (package results).
package queue
