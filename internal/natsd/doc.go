// Package natsd runs a NATS server with JetStream inside the process, for
// "toolfleet up" and for tests. It is the only package that imports
// nats-server: a fleet of separate processes uses a NATS that somebody else
// runs, and nothing but this package can tell the difference.
//
// The server installs no signal handlers and writes no files outside its store
// directory; it logs through the slog.Logger it is given.
package natsd
