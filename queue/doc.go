// Package queue is the listener and server of the fleet: the JetStream work
// queues that hold waiting and ready calls, and the slots that take them.
//
// A slot takes one delivery at a time and keeps it alive by a heartbeat; a
// worker that dies loses its deliveries after the ack wait, and somebody else
// gets them. The queue does not promise that a job runs once: the log does
// (package results).
package queue
