package natsdtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/internal/natsd"
)

// Cluster starts three servers that replicate streams, and returns a context
// on each once they have a leader. All is gone when the test ends.
func Cluster(t testing.TB) []jetstream.JetStream {
	t.Helper()
	return ClusterWith(t, natsd.Config{})
}

// ClusterWith is [Cluster] with a configuration of one's own, of which the
// directory, the port and the peers are the cluster's to set.
func ClusterWith(t testing.TB, c natsd.Config) []jetstream.JetStream {
	t.Helper()
	ports := FreePorts(t, 3)
	servers := make([]*natsd.Server, len(ports))
	for i, port := range ports {
		c.StoreDir, c.Port = t.TempDir(), natsd.RandomPort
		c.Cluster = &natsd.Cluster{Server: fmt.Sprintf("server-%d", i), Port: port, Peers: ports}
		servers[i] = StartWith(t, c)
	}
	contexts := make([]jetstream.JetStream, len(servers))
	for i, s := range servers {
		contexts[i] = JetStreamOn(t, s)
		AwaitLeader(t, contexts[i])
	}
	return contexts
}

// AwaitLeader asks until the cluster answers.
func AwaitLeader(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		ctx, cancel := context.WithTimeout(deadline, time.Second)
		_, err := js.AccountInfo(ctx)
		cancel()
		if err == nil {
			return
		}
		if deadline.Err() != nil {
			t.Fatalf("the cluster has no leader: %v", err)
		}
	}
}

// FreePorts finds ports that nobody listens on at this moment. They are below
// those that Linux gives to connections and to listeners that ask for any port:
// one of these was taken by another test's connection before its server came.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range 100 * n {
		port := 15_000 + rand.IntN(15_000)                                             //nolint:gosec // no secret
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // a moment, on loopback
		if err != nil {
			continue // taken
		}
		defer l.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports
		}
	}
	t.Fatalf("no %d free ports", n)
	return nil
}
