package part

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// Bus is everything a part keeps in JetStream. One Bus serves one process.
type Bus struct {
	Log      *results.Log
	Queue    *queue.Queue
	Registry *queue.Registry
	Blobs    *blob.Store
	Tools    *catalog.Store
	// Dispatchers is nil for a process that binds: workers have no use for it.
	Dispatchers *queue.Dispatchers

	nc *nats.Conn
	js jetstream.JetStream
}

// Ready says that the server cannot be reached; nil means that it can.
func (b *Bus) Ready() error {
	if !b.nc.IsConnected() {
		return errors.New("no NATS server can be reached; calls that run go on, and see that the servers run")
	}
	return nil
}

// leastPayload is the largest message that the fleet sends, in bytes: a result of
// [blob.InlineEvent], or an admission with arguments and a specification of the
// largest size, and what is around them.
const leastPayload = blob.InlineEvent + 64<<10

// checkServer says what to do about a server that cannot hold a fleet. Without
// it the first stream that is opened would fail, in the words of its protocol.
func checkServer(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error {
	var major, minor int
	// A version of another form is another server's, which may do all the same.
	if n, _ := fmt.Sscanf(nc.ConnectedServerVersion(), "%d.%d", &major, &minor); n == 2 && (major < 2 || major == 2 && minor < 11) {
		return fmt.Errorf("the NATS server at %s is version %s, and 2.11 or later is needed (events that expire one by one); see docs/operations.md for how to get one",
			Redacted(nc.ConnectedUrl()), nc.ConnectedServerVersion())
	}
	if limit := nc.MaxPayload(); limit < leastPayload {
		return fmt.Errorf("the NATS server at %s takes messages of %d bytes at most, and a fleet sends up to %d; leave max_payload at the server's default of 1 MiB",
			Redacted(nc.ConnectedUrl()), limit, leastPayload)
	}
	_, err := js.AccountInfo(ctx)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("JetStream is off for this account of the NATS server at %s; enable it for the account in the server's configuration (`jetstream: enabled`)", Redacted(nc.ConnectedUrl()))
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return fmt.Errorf("JetStream is off on the NATS server at %s; start it with `nats-server -js -sd DIRECTORY`", Redacted(nc.ConnectedUrl()))
	case err != nil:
		return fmt.Errorf("jetstream: %w", err)
	}
	return nil
}

// BusOptions says what a process does with what is in JetStream.
type BusOptions struct {
	// Kinds are the events that the process follows; nil means all.
	Kinds []string
	// Replicas is how many servers keep each stream. 0 leaves what is there as
	// it is, and makes what is not there with one.
	Replicas int
	// LogBytes bounds the log. 0 leaves one that is there as it is, and makes a
	// new one with 4 GiB.
	LogBytes int64
	// Lease is how long a worker, and a delivery, lives without a heartbeat; 0
	// means 15 s. Below minLease it is refused: the server counts in seconds.
	Lease time.Duration
	// Bind takes streams and buckets as they are and waits for those that are
	// not there: a dispatcher makes them, and a worker need not be allowed to.
	Bind bool
}

// OpenBus creates or checks the streams and buckets, or binds to them. Servers
// that start at the same time need a moment to choose who leads: it tries again
// for as long as openPatience.
func OpenBus(ctx context.Context, nc *nats.Conn, o BusOptions, logger *slog.Logger) (*Bus, error) {
	if o.Lease != 0 && o.Lease < minLease {
		return nil, fmt.Errorf("a lease of %s is too short; it must be at least %s", o.Lease, minLease)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	b := &Bus{nc: nc, js: js}
	until, told := time.Now().Add(openPatience), false
	for {
		err := b.open(ctx, js, o, logger)
		missing := o.Bind && errors.Is(err, jetstream.ErrStreamNotFound)
		switch {
		case err == nil:
			return b, nil
		case missing:
			if !told {
				logger.Info("waiting for a dispatcher, which makes the streams", "missing", err)
			}
			told = true
		case !leaderless(err) || time.Now().After(until):
			return nil, err
		}
		if !pause(ctx, openEvery) {
			return nil, context.Cause(ctx)
		}
	}
}

// minLease is the shortest lease.
const minLease = 3 * time.Second

const (
	// openPatience is how long servers may take to choose who leads.
	openPatience = time.Minute
	// openEvery is how often a process looks again.
	openEvery = time.Second
)

// noMetaLeader is the server's code for a cluster that cannot answer yet.
const noMetaLeader jetstream.ErrorCode = 10008

// leaderless reports whether nobody has answered who could have.
func leaderless(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == noMetaLeader || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders)
}

// pause waits for d; false means that ctx was done first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// asTheyAre fills in what was not said with what the log has now, so that a
// dispatcher that was told nothing undoes nothing. Without a log there is nothing
// to leave as it is.
func (o *BusOptions) asTheyAre(ctx context.Context, js jetstream.JetStream) error {
	if o.Bind || o.Replicas != 0 && o.LogBytes != 0 {
		return nil
	}
	stream, err := js.Stream(ctx, results.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("stream %s: %w", results.Stream, err)
	}
	config := stream.CachedInfo().Config
	o.Replicas, o.LogBytes = cmp.Or(o.Replicas, config.Replicas), cmp.Or(o.LogBytes, config.MaxBytes)
	return nil
}

func (b *Bus) open(ctx context.Context, js jetstream.JetStream, o BusOptions, logger *slog.Logger) (err error) {
	if err := checkServer(ctx, b.nc, js); err != nil {
		return err
	}
	if err := o.asTheyAre(ctx, js); err != nil {
		return err
	}
	if o.Replicas > 1 {
		defer func() {
			if err != nil {
				err = fmt.Errorf("%w; %d replicas need as many NATS servers in one cluster, all of them reachable", err, o.Replicas)
			}
		}()
	}
	if b.Log, err = results.Open(ctx, js, results.Options{Kinds: o.Kinds, MaxBytes: o.LogBytes, Replicas: o.Replicas, Bind: o.Bind, Log: logger}); err != nil {
		return err
	}
	jobs := queue.Options{Replicas: o.Replicas, Bind: o.Bind, AckWait: o.Lease}
	if b.Queue, err = queue.Open(ctx, js, jobs); err != nil {
		return err
	}
	if b.Registry, err = queue.OpenRegistry(ctx, js, jobs); err != nil {
		return err
	}
	if !o.Bind {
		if b.Dispatchers, err = queue.OpenDispatchers(ctx, js, jobs); err != nil {
			return err
		}
	}
	if b.Blobs, err = blob.Open(ctx, js, blob.Options{Replicas: o.Replicas, Bind: o.Bind}); err != nil {
		return err
	}
	b.Tools, err = catalog.OpenStore(ctx, js, catalog.StoreOptions{Replicas: o.Replicas, Bind: o.Bind})
	return err
}
