// Package natsdtest gives tests a real NATS server with JetStream. It is
// imported by tests only.
//
// With TOOLFLEET_TEST_NATS=cluster in the environment the same tests run on a
// cluster of three servers, and every stream that they make has three replicas.
// Three servers take seconds to find a leader, so a test process has one cluster
// (see [Main]), in which each call of [Start] gets an account of its own: its
// streams and subjects are nobody else's. A test that does something to its
// server, such as restarting it, asks for one by [StartWith].
package natsdtest

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/internal/natsd"
)

// Start starts a server on a directory of the test's own, listening on a
// random loopback port, and stops it when the test ends. In a cluster it is one
// of the servers.
func Start(t testing.TB) *natsd.Server {
	t.Helper()
	if clustered() {
		return lend(t)
	}
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
	nc, err := s.Connect(append(opts, account(s)...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// URL is where other processes reach s.
func URL(s *natsd.Server) string {
	if user, ok := accountOf(s); ok {
		return strings.Replace(s.ClientURL(), "://", "://"+user+":"+user+"@", 1)
	}
	return s.ClientURL()
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
	if _, ok := accountOf(s); ok {
		return replicated{js}
	}
	return js
}
