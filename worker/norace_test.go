//go:build !race

package worker

// burden is how many times more memory and processor time a worker may take
// because the race detector looks on.
const burden = 1
