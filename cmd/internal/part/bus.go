package part

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
)

// Bus is everything a part keeps in JetStream. One Bus serves one process.
type Bus struct {
	Log      *results.Log
	Queue    *queue.Queue
	Registry *queue.Registry
	Blobs    *blob.Store

	nc *nats.Conn
}

// Ready says that the server cannot be reached; nil means that it can.
func (b *Bus) Ready() error {
	if !b.nc.IsConnected() {
		return errors.New("NATS cannot be reached")
	}
	return nil
}

// Dial connects to a NATS server that runs elsewhere, and goes on trying for
// ever once it was reached: running calls outlive an absent server.
func Dial(urls string, logger *slog.Logger) (*nats.Conn, error) {
	nc, err := nats.Connect(urls,
		nats.Name("toolfleet"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500*time.Millisecond),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				logger.Warn("NATS is away; trying again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { logger.Info("NATS is back") }),
	)
	if err != nil {
		return nil, fmt.Errorf("no NATS server at %s: %w", Redacted(urls), err)
	}
	return nc, nil
}

// Redacted is a server's URL, or a list of them, without its passwords.
func Redacted(urls string) string {
	list := strings.Split(urls, ",")
	for i, raw := range list {
		if u, err := url.Parse(strings.TrimSpace(raw)); err == nil && u.User != nil {
			u.User = url.User("xxxxx") // a name alone is a token
			list[i] = u.String()
		} else if err != nil {
			list[i] = "an unreadable URL"
		}
	}
	return strings.Join(list, ",")
}

// checkServer says what to do about a server that cannot hold a fleet. Without
// it the first stream that is opened would fail, in the words of its protocol.
func checkServer(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error {
	var major, minor int
	// A version of another form is another server's, which may do all the same.
	if n, _ := fmt.Sscanf(nc.ConnectedServerVersion(), "%d.%d", &major, &minor); n == 2 && (major < 2 || major == 2 && minor < 11) {
		return fmt.Errorf("the NATS server at %s is version %s, and 2.11 or later is needed (events that expire one by one); see docs/operations.md for how to get one",
			nc.ConnectedUrlRedacted(), nc.ConnectedServerVersion())
	}
	_, err := js.AccountInfo(ctx)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("JetStream is off for this account of the NATS server at %s; enable it for the account in the server's configuration (`jetstream: enabled`)", nc.ConnectedUrlRedacted())
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return fmt.Errorf("JetStream is off on the NATS server at %s; start it with `nats-server -js -sd DIRECTORY`", nc.ConnectedUrlRedacted())
	case err != nil:
		return fmt.Errorf("jetstream: %w", err)
	}
	return nil
}

// OpenBus creates or checks the streams and buckets. kinds are the events that
// the process follows; nil means all.
func OpenBus(ctx context.Context, nc *nats.Conn, kinds []string, logger *slog.Logger) (*Bus, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	if err := checkServer(ctx, nc, js); err != nil {
		return nil, err
	}
	b := &Bus{nc: nc}
	if b.Log, err = results.Open(ctx, js, results.Options{Kinds: kinds, Log: logger}); err != nil {
		return nil, err
	}
	if b.Queue, err = queue.Open(ctx, js, queue.Options{}); err != nil {
		return nil, err
	}
	if b.Registry, err = queue.OpenRegistry(ctx, js, queue.Options{}); err != nil {
		return nil, err
	}
	if b.Blobs, err = blob.Open(ctx, js, blob.Options{}); err != nil {
		return nil, err
	}
	return b, nil
}
