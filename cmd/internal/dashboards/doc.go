// Package dashboards holds the dashboards of deploy/grafana to what the fleet
// really has.
//
// A dashboard rots in silence: a metric is renamed, a label goes, and a panel shows
// "No data", which on a bad night reads as "nothing wrong". So two tests look at
// every query. One, always run, knows the metrics and their labels from their
// golden list. The other, with the build tag ops, runs a NATS server, a dispatcher
// and a worker as processes of their own, real sandboxes in them, lets two tenants
// call tools that succeed, fail, flood and cannot be pulled, has Debian's Prometheus
// scrape it all, and wants data from each query of each panel; deploy/grafana/check.sh
// runs it.
//
// Panels whose good state is nothing say so by 0 (`or vector(0)`), so that "No
// data" always means that something is wrong.
package dashboards
