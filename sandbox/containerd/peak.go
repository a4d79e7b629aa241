package containerd

import "context"

// ResetPeak begins a new count of [sandbox.Usage].PeakMemory, for the next call
// in a sandbox that had one already. Where the kernel cannot count anew, the
// peak is unknown from then on and reads 0 (cgroup v2 before Linux 6.12). It
// fails when the sandbox has ended. It is safe for concurrent use.
func (i *instance) ResetPeak(context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cgroup.resetPeak()
}
