// Package secret is what a worker knows of secrets: which tool of which tenant
// may have which, where their values are, and how to take them out of what a
// tool says.
//
// A tool file names secrets; that is a wish. The operator's file, which only
// workers read, grants them, to tools and tenants by name. [Store.Resolve]
// answers with the values for one call, read at that moment, so that a value
// that was rotated is the next call's. They go from here into the sandbox and
// nowhere else: no type of this package that holds a value can be printed.
//
// A [Redactor] is made of the values of one call and takes them out of
// everything that leaves the call: whole, in pieces, and as the usual encodings
// write them. It is a net for accidents (an error text with its URL, a debug
// log, a stack trace), not a wall: a tool that wants to give its secret away can
// encrypt it. What a tool must not be able to give away, it must not be given.
package secret
