// Package simulate is a fleet on paper: calls arrive, workers come and go, and
// what calls wait and what idle slots cost is counted. It backs the defaults by
// which the Helm chart scales workers, and shows what others would do
// (docs/scaling.md).
//
// It is a discrete-event simulation: time jumps from one event to the next, and
// everything random comes from a seed, so a run is the same each time. What is
// real in it is the scheduler's choice ([keeper.Policy] is the scheduler's own);
// the autoscaler follows the published rules of Kubernetes, as KEDA's ScaledObject
// of the chart sets them.
//
// What is left out, and is small beside the start of a pod: the tenths of a second
// in which a call crosses the bus and the scheduler counts slots. Calls take as
// long as they take, however many run on a worker.
package simulate
