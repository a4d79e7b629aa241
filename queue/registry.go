package queue

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// WorkerInfo is what a worker tells about itself in the bucket
// toolfleet_workers.
type WorkerInfo struct {
	ID          string    `json:"id"`
	Incarnation string    `json:"incarnation"`
	Host        string    `json:"host"`
	Class       string    `json:"class"`
	Runtimes    []string  `json:"runtimes"`
	Slots       int       `json:"slots"`
	Busy        int       `json:"busy"`
	Started     time.Time `json:"started"`
}

// Registry is the bucket of living workers: heartbeat 5 s, TTL 15 s.
type Registry struct{}

// OpenRegistry creates or checks the bucket.
func OpenRegistry(ctx context.Context, js jetstream.JetStream) (*Registry, error) { panic("unwritten") }

// Run registers a worker, beats until ctx is done, then deletes the entry.
// info is called at every beat.
func (r *Registry) Run(ctx context.Context, info func() WorkerInfo) error { panic("unwritten") }

// Alive reports whether that incarnation of the worker beats. A worker that
// was started again is another incarnation, so the old one is dead at once.
func (r *Registry) Alive(ctx context.Context, id, incarnation string) (bool, error) {
	panic("unwritten")
}

// List lists the living workers.
func (r *Registry) List(ctx context.Context) ([]WorkerInfo, error) { panic("unwritten") }
