// Package local is a sandbox runtime without a sandbox: the agent and its tool
// are ordinary processes of this host. It is for tests, and for trying a tool
// out, on machines without containerd. Nothing chooses it unless it was asked
// for by name.
//
// What it does keep: the agent starts the tool exactly as it would in a
// container, so streams, exits, users, privileges (no capabilities,
// no_new_privs) and resource limits are the real ones. A sandbox has its own
// directories for workspace, home and temporary files, and ends with all of its
// processes: as root through a pid namespace, otherwise by walking the tree
// below the agent.
//
// What it does not keep: the tool sees the host's files, network and processes.
// Image, pull policy, runtime handler and isolation of a spec are ignored, so a
// program in Argv is one of the host's; limits on memory, processes, cpu and
// disk are not enforced; all counters of a sandbox's usage stay 0.
package local
