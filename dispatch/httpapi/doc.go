// Package httpapi is the fleet's native HTTP door: submit a call, wait for its
// result or stream it as an AG-UI run, list, resume, cancel, fetch blobs.
//
// A call that was answered is a 200, whatever the answer says: a failing tool
// is a result. Other statuses mean that the request was malformed (400, 413,
// 415), not allowed (401, 403), about no such call (404), about the same ids
// with other arguments (409), or that the fleet as a whole cannot take it now
// (503, with Retry-After). All of these are RFC 9457 problem documents.
//
// A client that goes away cancels nothing. It comes back with the call's id,
// with the same Idempotency-Key, or with Last-Event-ID.
//
// # Who may come in
//
// Without a token file the server listens on loopback only and serves one
// tenant. Loopback is no wall against a browser on the same machine, so a
// request must name a loopback host (a name that DNS was made to resolve to
// 127.0.0.1 is none) and must not come from a page of another origin. With a
// token file every path but health wants a bearer token, and the token decides
// the tenant: nothing in a request does.
//
// A blob can also be fetched by a signed URL that expires, because a client
// that shows a result's image has no token of ours.
package httpapi
