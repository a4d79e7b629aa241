package metrics

import "time"

// Sandboxes counts the sandboxes of one runtime by what they are doing.
type Sandboxes struct{ Starting, Warm, Running, Closing int }

// SetSandboxes says what this worker's sandboxes of a runtime are doing. It is
// a whole picture each time and not steps up and down, so that a forgotten
// step cannot make a gauge drift.
func (m *Metrics) SetSandboxes(runtime string, s Sandboxes) {
	if m == nil {
		return
	}
	runtime = m.names.value(runtime)
	m.sandboxes.WithLabelValues(runtime, "starting").Set(float64(s.Starting))
	m.sandboxes.WithLabelValues(runtime, "warm").Set(float64(s.Warm))
	m.sandboxes.WithLabelValues(runtime, "running").Set(float64(s.Running))
	m.sandboxes.WithLabelValues(runtime, "closing").Set(float64(s.Closing))
}

// SandboxStarted observes how long a call waited for its sandbox. warm says
// that it came from the pool.
func (m *Metrics) SandboxStarted(runtime string, warm bool, took time.Duration) {
	if m == nil {
		return
	}
	temperature := "cold"
	if warm {
		temperature = "warm"
	}
	m.sandboxStart.WithLabelValues(m.names.value(runtime), temperature).Observe(max(0, took).Seconds())
}

// SandboxFailed counts a sandbox that failed for a reason of ours.
func (m *Metrics) SandboxFailed(runtime string) {
	if m == nil {
		return
	}
	m.sandboxFailures.WithLabelValues(m.names.value(runtime)).Inc()
}

// SandboxesSwept counts sandboxes that a dead worker left and the sweep removed.
func (m *Metrics) SandboxesSwept(runtime string, n int) {
	if m == nil || n <= 0 {
		return
	}
	m.sandboxesSwept.WithLabelValues(m.names.value(runtime)).Add(float64(n))
}

// SetPool says how many sandboxes of a kind wait in the pool, and how many
// should.
func (m *Metrics) SetPool(runtime, isolation string, warm, target int) {
	if m == nil {
		return
	}
	runtime, isolation = m.names.value(runtime), m.kinds.value(isolation)
	m.poolWarm.WithLabelValues(runtime, isolation).Set(float64(warm))
	m.poolTarget.WithLabelValues(runtime, isolation).Set(float64(target))
}

// PoolGet counts a sandbox that a call asked the pool for. A miss is one that
// had to be started, also when that failed.
func (m *Metrics) PoolGet(runtime, isolation string, hit bool) {
	if m == nil {
		return
	}
	outcome := "miss"
	if hit {
		outcome = "hit"
	}
	m.poolGets.WithLabelValues(m.names.value(runtime), m.kinds.value(isolation), outcome).Inc()
}

// RefillFailed counts a sandbox that could not be started for the pool.
func (m *Metrics) RefillFailed(runtime, isolation string) {
	if m == nil {
		return
	}
	m.poolFailures.WithLabelValues(m.names.value(runtime), m.kinds.value(isolation)).Inc()
}

// HostObjects counts what there is on the host because of sandboxes, beside the
// sandboxes that are alive. What stays above them for long is a leak.
type HostObjects struct {
	Sandboxes int // alive: starting, warm, with a call, or being removed

	Shims, Containers, Snapshots, Mounts    int
	Cgroups, NetworkNamespaces, Directories int
}

// SetHostObjects takes a whole picture, made at one time.
func (m *Metrics) SetHostObjects(o HostObjects) {
	if m == nil {
		return
	}
	for object, n := range map[string]int{
		"sandboxes": o.Sandboxes, "shims": o.Shims, "containers": o.Containers, "snapshots": o.Snapshots,
		"mounts": o.Mounts, "cgroups": o.Cgroups, "network_namespaces": o.NetworkNamespaces, "directories": o.Directories,
	} {
		m.hostObjects.WithLabelValues(object).Set(float64(n))
	}
}

// Egress counts a connection of a tool that has ended or was refused, with the
// bytes that the tool sent and received.
func (m *Metrics) Egress(verdict, reason string, sent, received int64) {
	if m == nil {
		return
	}
	m.egress.WithLabelValues(m.kinds.value(verdict), m.kinds.value(reason)).Inc()
	m.egressBytes.WithLabelValues("sent").Add(float64(max(0, sent)))
	m.egressBytes.WithLabelValues("received").Add(float64(max(0, received)))
}

// ImagePulled observes a pull that has ended, well or not.
func (m *Metrics) ImagePulled(took time.Duration, err error) {
	if m == nil {
		return
	}
	outcome := "pulled"
	if err != nil {
		outcome = "failed"
	}
	m.pulls.WithLabelValues(outcome).Observe(max(0, took).Seconds())
}
