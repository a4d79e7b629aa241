// Package metrics is every Prometheus metric of the fleet on one page.
//
// A process makes one [Metrics] from its registry and passes it to the parts
// that count; there are no globals, and a nil *Metrics counts nothing, so no
// part needs a special case to run without metrics.
//
// Names begin toolfleet_ and use base units: seconds and bytes. Labels come
// from closed sets (kinds, statuses, steps, routes) or from names an operator
// wrote (tools of the catalogue, tenants that have a token, runtimes, classes),
// never from a request. What a caller passes by mistake is bounded all the same: a
// label takes a fixed number of different values, and "_other" stands for those
// beyond it. No metric has both a tool and a tenant, whose product has no bound
// that a server of metrics would like. Images, threads, calls and sandboxes are no
// labels: they belong in logs.
//
// Histograms have classic buckets and native ones, and the times of calls carry
// the traces of sampled calls as exemplars. testdata/metrics.txt lists every name.
//
// The package imports nothing else of this project, so the values of a label
// are strings here and constants in the packages that own them.
package metrics
