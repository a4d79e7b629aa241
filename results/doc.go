// Package results is the call log: everything that happens to a call, as
// AG-UI events in one stream, with rules that the server enforces.
//
// A call's log opens with its admission and ends with its result. The result
// subject takes one message, so the first result wins; every other append
// carries the guard "there is no result yet", so nothing can follow it. The
// start subject takes one message too: the fence that keeps a tool which may
// not be repeated from being started twice. A fence forgets what the stream's
// MaxAge has deleted, which is where the promise ends (see [MaxAge]).
package results
