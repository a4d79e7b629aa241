// Package e2e installs the Helm chart on a real Kubernetes node and watches it
// keep its promises: `make e2e-k8s`. Its tests have the build tag e2e, since they
// want root and programs that take twenty minutes of processor time to build.
//
// The node is etcd, the API server, the controller manager, the scheduler, a
// kubelet with a containerd, kube-proxy and CoreDNS, as any cluster has them. It
// touches nothing of the machine: the test starts itself anew as the first process
// of a pid namespace, with mounts, network and cgroups of its own. Whatever ends
// that process, be it the test's end, a panic or SIGKILL, the kernel kills
// everything in the namespace and takes the mounts and networks along. What is then
// left is empty cgroups and a directory, which the process outside removes, or the
// next run if that one was killed too.
//
// What one node cannot show is not here: NetworkPolicies are accepted but not
// enforced (the bridge plugin knows none), and no KEDA and no Prometheus operator
// run, so their objects are checked by `make ops-check` alone.
package e2e
