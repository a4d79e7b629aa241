// Package inject lets a tool use a secret that it never has. The tool speaks
// plain HTTP to a name inside its sandbox; here, on the worker, a header with
// the secret is added and the request goes on by TLS to the one host of that
// name. What comes back is searched for the secret, since some hosts repeat
// what they were sent.
//
// The middle of a connection is where requests are smuggled, so nothing is
// passed on as it came: net/http reads each request, judges it and writes it
// anew. A request for another host is refused, and so is what would turn the
// connection into something else: CONNECT, upgrades (WebSockets among them),
// HTTP/2. A redirect is the tool's to follow or not; a secret never goes where
// it points.
package inject
