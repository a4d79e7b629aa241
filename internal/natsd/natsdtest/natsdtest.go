// Package natsdtest gives tests a real NATS server with JetStream. It is
// imported by tests only.
package natsdtest

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/internal/natsd"
)

// Start starts a server on a directory of the test's own, listening on a
// random loopback port, and stops it when the test ends.
func Start(t testing.TB) *natsd.Server {
	t.Helper()
	return StartWith(t, natsd.Config{StoreDir: t.TempDir(), Port: natsd.RandomPort})
}

// StartWith is [Start] with a configuration of one's own.
func StartWith(t testing.TB, c natsd.Config) *natsd.Server {
	t.Helper()
	s, err := natsd.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// Connect makes a connection inside the process and closes it when the test
// ends.
func Connect(t testing.TB, s *natsd.Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := s.Connect(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// JetStream is a server, a connection and a context on it, all gone when the
// test ends.
func JetStream(t testing.TB) jetstream.JetStream {
	t.Helper()
	return JetStreamOn(t, Start(t))
}

// JetStreamOn is a connection to s and a context on it, for tests that do
// something to the server.
func JetStreamOn(t testing.TB, s *natsd.Server) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(Connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return js
}
