// Package part assembles the two parts of a fleet, the dispatcher and the
// worker, from their configuration. The commands dispatcher and worker run one
// each; `toolfleet up` runs both in one process with an embedded NATS server.
//
// Everything is wired by hand, and each part stops in a written order:
// not ready, stop taking, let finish, cancel, close.
package part
