package containerd

import "time"

// Hasten makes the pauses between the tries of a request so short that tests
// need not wait for them.
func (r *Runtime) Hasten() {
	r.registries.patient.pause = time.Millisecond
}
