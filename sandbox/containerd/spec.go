package containerd

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// agentThreads is what the pids limit allows beyond the tool's: the agent is a
// Go program, whose threads count as processes too.
const agentThreads = 16

// agentInside is where the furniture puts the agent.
const agentInside = "/.toolfleet/agent"

// agentCaps is what the agent needs to lock the tool down: another user, an
// empty bounding set, a signal to a process of another user, and the limits
// of its user namespace under /proc/sys/user (SYS_RESOURCE, which outside of
// the first user namespace gives little else), and ports below 1024 of the
// sandbox's own network namespace, on which a tool finds what it may reach. The
// tool gets none of them.
var agentCaps = []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SYS_RESOURCE"}

// cellCaps is what an agent needs besides to make cells: namespaces and mounts,
// and the loopback interface of a new network namespace. They reach as far as
// the sandbox's own user namespace, and the agent's filter lets more pass for
// them (see cellProfile); the tool still gets none.
var cellCaps = append([]string{"CAP_SYS_ADMIN", "CAP_NET_ADMIN"}, agentCaps...)

// cellHostDisk is the disk of a container of cells. Cells have their own, which
// the agent makes; this one only has to be there.
const cellHostDisk = 64 << 10

// specParts is what differs between two sandboxes.
type specParts struct {
	limits   sandbox.Limits
	ids      *idRange
	root     string // where it is mounted
	disk     *disk
	cgroup   cgroup
	seccomp  *specs.LinuxSeccomp
	apparmor string
	cells    bool
	secrets  bool
}

// spec is the base line as this handler takes it.
func (h *handler) spec(p specParts) *specs.Spec {
	s := ociSpec(p)
	if h.adapt != nil {
		h.adapt(s, p.limits)
	}
	return s
}

// ociVersion is the oldest version of the OCI runtime specification that has
// everything used here. Some runtimes refuse a newer one that they would do
// well with.
const ociVersion = "1.0.2"

// ociSpec is the base line of every sandbox. It is written out rather than
// built from options, so that one can read what a sandbox may do.
func ociSpec(p specParts) *specs.Spec {
	caps, args := agentCaps, []string{agentInside}
	if p.cells {
		caps, args = cellCaps, append(args, "-cells")
	}
	mounts := slices.Concat(baseMounts, p.disk.mounts())
	if p.secrets {
		mounts, args = append(mounts, secretsMount), append(args, "-secrets")
	}
	return &specs.Spec{
		Version:  ociVersion,
		Root:     &specs.Root{Path: p.root, Readonly: true},
		Hostname: "sandbox",
		Process: &specs.Process{
			Args: args,
			Cwd:  "/",
			Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			User: specs.User{UID: 0, GID: 0},
			// Capabilities of the agent, in its user namespace. Not inheritable
			// or ambient: they must not survive an exec.
			Capabilities: &specs.LinuxCapabilities{
				Bounding: caps, Effective: caps, Permitted: caps,
			},
			NoNewPrivileges: true,
			ApparmorProfile: p.apparmor,
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_CORE", Soft: 0, Hard: 0},
				{Type: "RLIMIT_NOFILE", Soft: 1024, Hard: 4096},
			},
		},
		Mounts: mounts,
		Linux: &specs.Linux{
			UIDMappings:   p.ids.mapping(),
			GIDMappings:   p.ids.mapping(),
			CgroupsPath:   p.cgroup.path,
			Namespaces:    namespaces,
			Resources:     resources(p.limits),
			Seccomp:       p.seccomp,
			MaskedPaths:   wire.MaskedPaths,
			ReadonlyPaths: readonlyPaths,
		},
	}
}

// namespaces are all new. A new network namespace holds only the loopback
// interface, which runc brings up.
var namespaces = []specs.LinuxNamespace{
	{Type: specs.UserNamespace},
	{Type: specs.PIDNamespace},
	{Type: specs.MountNamespace},
	{Type: specs.IPCNamespace},
	{Type: specs.UTSNamespace},
	{Type: specs.CgroupNamespace},
	{Type: specs.NetworkNamespace},
}

// baseMounts comes before the disk, whose /dev/shm lies in /dev. Terminals are
// bounded because the machine has only so many.
var baseMounts = []specs.Mount{
	{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
	{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=64k"}},
	{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", "max=16"}},
	{Destination: "/sys", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "nodev", "ro", "mode=755", "size=64k"}},
	{Destination: sysCPU, Type: "bind", Source: sysCPU, Options: []string{"bind", "nosuid", "noexec", "nodev", "ro"}},
}

// secretsMount is where the agent puts the secrets of a call that wants them in
// files: in no directory of the host, and on no disk. Its pages count as the
// sandbox's memory, which is not swapped.
var secretsMount = specs.Mount{
	Destination: wire.DirSecrets, Type: "tmpfs", Source: "tmpfs",
	Options: []string{"nosuid", "noexec", "nodev", "mode=755", "size=1m", "nr_inodes=64"},
}

// sysCPU is all that a sandbox has of /sys, since programs count processors
// there. The rest of it describes the host: its disks with their serial numbers,
// its network cards, where its kernel lies in memory. Masks cannot cover that,
// because the names differ from machine to machine; so nothing is shown, and it
// is two mounts less.
const sysCPU = "/sys/devices/system/cpu"

// readonlyPaths are all of /proc/sys but /proc/sys/user, where the agent sets
// the limits of the user namespace: things such as inotify instances belong to
// a user of the host, root, and one sandbox could take them all. The tool
// cannot write there for want of a capability.
var readonlyPaths = []string{
	"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger",
	"/proc/sys/abi", "/proc/sys/crypto", "/proc/sys/debug", "/proc/sys/dev", "/proc/sys/fs",
	"/proc/sys/kernel", "/proc/sys/net", "/proc/sys/sunrpc", "/proc/sys/vm",
}

// cpuPeriod is the kernel's default, in microseconds.
const cpuPeriod = uint64(100_000)

// resources are the cgroup's limits. Pages of the disk count as memory, so the
// memory limit is the sum of both; swap is 0 wherever the kernel can say so.
func resources(l sandbox.Limits) *specs.LinuxResources {
	memory := l.Memory + l.Disk
	pids := l.Pids + agentThreads
	quota := max(1000, int64(l.CPU*float64(cpuPeriod)))
	period := cpuPeriod
	r := &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
		Memory:  &specs.LinuxMemory{Limit: &memory},
		Pids:    &specs.LinuxPids{Limit: &pids},
		CPU:     &specs.LinuxCPU{Quota: &quota, Period: &period},
	}
	if swapLimit() {
		r.Memory.Swap = &memory
	}
	return r
}
