// Package client talks to a fleet over its HTTP API, for the command line.
//
// What matters here is that a call outlives the connection it was made on: the
// ids of a call are made on this side, so that the same request sent twice is
// one call, and a broken stream is taken up again behind the last event that
// arrived. A stream therefore ends in one of two ways only: with the run's last
// event, or with [ErrUnreachable] after the fleet was away for too long.
package client
