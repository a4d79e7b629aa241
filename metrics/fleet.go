package metrics

import "time"

// What follows is said as a whole picture each time: a class, a tenant or a stream
// that is not in it any more has no series any more.

// SetOldestWaiting says how long the oldest call of each class waits that nobody
// has started.
func (m *Metrics) SetOldestWaiting(ages map[string]time.Duration) {
	if m == nil {
		return
	}
	m.waited.Reset()
	for class, age := range ages {
		m.waited.WithLabelValues(m.names.value(class)).Set(max(0, age).Seconds())
	}
}

// SetWorkers says how many workers of each class are alive.
func (m *Metrics) SetWorkers(classes map[string]int) {
	if m == nil {
		return
	}
	m.workers.Reset()
	for class, n := range classes {
		m.workers.WithLabelValues(m.names.value(class)).Add(float64(n))
	}
}

// WorkersLost counts workers that ended without signing off.
func (m *Metrics) WorkersLost(n int) {
	if m == nil {
		return
	}
	m.workersLost.Add(float64(max(0, n)))
}

// TenantJobs is what a tenant has in the queues.
type TenantJobs struct {
	Waiting int // for their turn
	Placed  int // ready for a slot, or in one
}

// SetTenantJobs says what each tenant has in the queues. The process that schedules
// says so; one that does no more says nil.
func (m *Metrics) SetTenantJobs(tenants map[string]TenantJobs) {
	if m == nil {
		return
	}
	m.tenantJobs.Reset()
	for tenant, jobs := range tenants {
		tenant = m.tenants.value(tenant)
		m.tenantJobs.WithLabelValues(tenant, "waiting").Add(float64(jobs.Waiting))
		m.tenantJobs.WithLabelValues(tenant, "placed").Add(float64(jobs.Placed))
	}
}

// SpansDropped counts spans that the collector of traces did not get.
func (m *Metrics) SpansDropped(n int) {
	if m == nil {
		return
	}
	m.spansDropped.Add(float64(max(0, n)))
}

// SetNATS says whether this process is connected to a NATS server.
func (m *Metrics) SetNATS(connected bool) {
	if m == nil {
		return
	}
	m.nats.Set(number(connected))
}

// SetContainerd says whether this worker's containerd answers.
func (m *Metrics) SetContainerd(connected bool) {
	if m == nil {
		return
	}
	m.containerd.WithLabelValues().Set(number(connected))
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// SetStream says how many bytes a stream holds, and how many it may; a limit of
// 0 or less is none, and is not shown.
func (m *Metrics) SetStream(stream string, bytes uint64, limit int64) {
	if m == nil {
		return
	}
	stream = m.names.value(stream)
	m.streamBytes.WithLabelValues(stream).Set(float64(bytes))
	if limit > 0 {
		m.streamLimit.WithLabelValues(stream).Set(float64(limit))
	}
}
