// Package containerd runs sandboxes as containerd containers, and a containerd
// of our own when the machine has none.
//
// It is the only package that imports containerd. Above it, a sandbox is a
// [sandbox.Instance]: a byte stream to the agent, and an end.
//
// # What one sandbox consists of
//
//   - A containerd *container* record, made first and deleted last. It is the
//     note of intent: whatever else carries the sandbox's id without a record
//     beside it is left over, and [Runtime.Sweep] removes it. Its labels say
//     who made it and when anybody may remove it.
//   - A *range* of 65,536 user ids of its own, held by a lock file that the
//     kernel releases when the worker dies. A held range means that the
//     sandbox's worker lives; nobody sweeps such a sandbox.
//   - A *disk*: one tmpfs of the size of the disk limit, mounted on the host
//     and bound into the sandbox as /tmp, /workspace, /home/tool and /dev/shm,
//     so that the limit is the sum over all of them.
//   - A *root*, mounted on the host: the layers of its image, with their ids
//     mapped into its range.
//   - A *seat* in a shim, the process of containerd's that stands between it
//     and the sandbox. Up to 16 sandboxes of one worker share a shim, which the
//     worker starts and locks a directory for; runtimes with a shim of their
//     own have one for each.
//   - Two FIFOs to the agent, and a *task*: the processes, in a cgroup of their
//     own, in user, pid, mount, ipc, uts, cgroup and network namespaces of
//     their own.
//
// # The root filesystem
//
// A sandbox has no snapshot of its own. When an image is first used, one more
// layer goes on top of it, the *furniture*: the agent and the mount points
// that a read-only root must already have. All sandboxes of the image mount
// the same read-only overlay of furniture and layers, each with its own id
// mapping. So a start writes nothing to the disk and an end deletes nothing
// from it. The furnished snapshot hangs on the image's record by a garbage
// collection reference and on every container by its snapshot key, so no
// lease is needed for a start; the making of it is done under a lease that
// expires.
//
// # Images
//
// An image is imported, or pulled in this process by containerd's client: see
// [Runtime.Ensure] for when, and [Registries] for how. Everything that goes over
// the network goes through one HTTP transport, which alone tries again, bounds
// answers, and keeps credentials from third hosts. What fails is a
// [sandbox.ImageError] that says which of the faults it was; what a registry
// says about it is a hint for the log, cut short. Each worker writes on the
// images which tools it has for them, and [Runtime.KeepImages] removes those
// that were pulled and that no worker has had a use for.
package containerd
