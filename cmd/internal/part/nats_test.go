package part

import (
	"log/slog"
	"strings"
	"testing"
)

// TestNoSecretInAnError: neither the password nor the token of a NATS URL is
// told, however the URL is written.
func TestNoSecretInAnError(t *testing.T) {
	server := bareServer(t, "2.10.29")
	for _, url := range []string{
		"nats://me:secret@127.0.0.1:1", "me:secret@127.0.0.1:1", "nats://secret@127.0.0.1:1", "secret@127.0.0.1:1",
		"nats://me:secret%ZZ@127.0.0.1:1", "nats://127.0.0.1:1, nats://me:secret@127.0.0.1:2",
		"nats://me:secret@127.0.0.1:none", "nats://me:secret b@127.0.0.1:1", "nats://me:secret#b@127.0.0.1:1", "nats://me#secret@127.0.0.1:1",
		"nats://me:secret@" + server, "nats://secret@" + server,
	} {
		nc, err := Dial(NATSConfig{NATS: url}, RoleDispatcher, slog.New(slog.DiscardHandler))
		if err == nil { // by a bare server, which is refused for its version
			_, err = OpenBus(t.Context(), nc, BusOptions{}, slog.New(slog.DiscardHandler))
			nc.Close()
		}
		if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(Redacted(url), "secret") {
			t.Errorf("%s: %v; %s", url, err, Redacted(url))
		}
	}
}
