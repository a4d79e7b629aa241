package metrics

// SetQueue says how many jobs of a class are ready for a slot and how many are
// being worked on.
func (m *Metrics) SetQueue(class string, ready, inFlight int) {
	if m == nil {
		return
	}
	class = m.names.value(class)
	m.queueJobs.WithLabelValues(class, "ready").Set(float64(ready))
	m.queueJobs.WithLabelValues(class, "in_flight").Set(float64(inFlight))
}

// SetWaiting says how many jobs of a class wait for their turn. The process that
// schedules says so; one that does no more says 0.
func (m *Metrics) SetWaiting(class string, n int) {
	if m == nil {
		return
	}
	m.queueJobs.WithLabelValues(m.names.value(class), "waiting").Set(float64(n))
}

// Delivery counts a delivery that a worker is done with. outcome is "ack",
// "retry" or "abandoned", the last for one whose handler ended it neither way.
func (m *Metrics) Delivery(outcome string) {
	if m == nil {
		return
	}
	m.deliveries.WithLabelValues(m.kinds.value(outcome)).Inc()
}

// ConsumerRebuilt counts a consumer that had work, delivered none, and was
// made anew.
func (m *Metrics) ConsumerRebuilt() {
	if m == nil {
		return
	}
	m.rebuilds.Inc()
}

// JobsAdopted counts jobs that the server's consumer had lost and that were
// queued again.
func (m *Metrics) JobsAdopted(n int) {
	if m == nil {
		return
	}
	m.adopted.Add(float64(n))
}

// SetSlots says how many slots this worker has and how many are in use.
func (m *Metrics) SetSlots(total, busy int) {
	if m == nil {
		return
	}
	m.slots.Set(float64(total))
	m.slotsBusy.Set(float64(busy))
}

// ProgressDropped counts a progress event that was not published. reason is
// "full" (the log is), "failed" (the server is away) or "malformed".
func (m *Metrics) ProgressDropped(reason string) {
	if m == nil {
		return
	}
	m.progressDropped.WithLabelValues(m.kinds.value(reason)).Inc()
}

// AppendLost counts an append that the log refused because the call has its
// result. event is the kind of log entry, such as "progress" or "claim".
func (m *Metrics) AppendLost(event string) {
	if m == nil {
		return
	}
	m.appendsLost.WithLabelValues(m.kinds.value(event)).Inc()
}

// ResultDropped counts a result that lost to an earlier one.
func (m *Metrics) ResultDropped() {
	if m == nil {
		return
	}
	m.resultsDropped.Inc()
}

// SetInFlightLimit says how many jobs of a class may be in flight.
func (m *Metrics) SetInFlightLimit(class string, n int) {
	if m == nil {
		return
	}
	m.queueLimit.WithLabelValues(m.names.value(class)).Set(float64(n))
}

// Redelivered counts a delivery that was not its job's first.
func (m *Metrics) Redelivered() {
	if m == nil {
		return
	}
	m.redelivers.Inc()
}
