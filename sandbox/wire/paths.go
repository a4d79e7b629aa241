package wire

// MaskedPaths of /proc tell about the host, or let one act on it. Whoever
// mounts a /proc for a tool, a runtime for a container or the agent for a cell,
// covers them.
var MaskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
	"/proc/pressure", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
}

// ReadonlyPaths may be read and not written.
var ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger", "/proc/sys"}
