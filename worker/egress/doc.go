// Package egress is the worker's half of a tool's network: what a call may
// connect to, and the connections themselves.
//
// A sandbox has an empty network namespace and keeps it. Its agent listens on
// loopback addresses of its own and forwards streams (package sandbox); all that
// is spoken there is spoken here:
//
//   - an address for each exact name of the tool's allow list, and port 53, where
//     those names are answered with these addresses and all others do not exist;
//   - a proxy, for what has no address: HTTP's CONNECT, HTTP itself, and SOCKS5,
//     on one port. It serves wildcards and networks.
//
// A connection is decided by the name that the tool asked for, then by every
// address that the worker resolves it to, and it goes to an address that was
// checked: who answers differently the second time gains nothing, since nobody
// asks twice. TLS passes through as it is; what stands in its SNI is between the
// tool and the host that it may reach anyway.
//
// What is refused is refused at once, counted, written to the audit log, and told
// in the call's result.
package egress
