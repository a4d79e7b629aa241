package natsdtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/internal/natsd"
)

// clustered reports whether tests run on a cluster.
func clustered() bool { return os.Getenv("TOOLFLEET_TEST_NATS") == "cluster" }

// Main wraps a package's tests for its TestMain, around which goleak looks:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(natsdtest.Main(m)) }
//
// It stops the cluster that the tests have shared, if they have.
func Main(m *testing.M) interface{ Run() int } { return run{m} }

type run struct{ m *testing.M }

// Run runs the tests.
func (r run) Run() int {
	code := r.m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "natsdtest:", err)
		return 1
	}
	return code
}

// cluster is three servers with many accounts.
type cluster struct {
	mu      sync.Mutex
	dir     string
	servers []*natsd.Server
	// lent counts accounts; each is lent once.
	lent int
	// accounts says which account a server was lent with.
	accounts map[*natsd.Server]string
}

var shared cluster

// maxAccounts is more than any package has tests.
const maxAccounts = 512

// lend is one of the shared cluster's servers, with an account that nobody else
// has. Its streams are deleted when the test ends.
func lend(t testing.TB) *natsd.Server {
	t.Helper()
	c := &shared
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers == nil {
		c.start(t)
	}
	if c.lent == maxAccounts {
		t.Fatalf("natsdtest: more than %d servers were asked for", maxAccounts)
	}
	// A copy, so that it is told from the others that stand for the same server.
	s := *c.servers[c.lent%len(c.servers)]
	c.accounts[&s] = fmt.Sprint("T", c.lent)
	c.lent++
	t.Cleanup(func() { giveBack(t, &s) })
	return &s
}

func giveBack(t testing.TB, s *natsd.Server) {
	nc, err := s.Connect(account(s)...)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		err = errors.Join(err, js.DeleteStream(ctx, name))
	}
	if err = errors.Join(err, names.Err()); err != nil {
		t.Errorf("natsdtest: delete streams: %v", err)
	}
}

// accountOf is the account that a server was lent with, if it was.
func accountOf(s *natsd.Server) (string, bool) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	name, ok := shared.accounts[s]
	return name, ok
}

// account is how to connect to a server that was lent.
func account(s *natsd.Server) []nats.Option {
	if name, ok := accountOf(s); ok {
		return []nats.Option{nats.UserInfo(name, name)}
	}
	return nil
}

// start starts the servers. The caller holds mu.
func (c *cluster) start(t testing.TB) {
	t.Helper()
	dir, err := os.MkdirTemp("", "natsdtest")
	if err != nil {
		t.Fatal(err)
	}
	c.dir, c.accounts = dir, map[*natsd.Server]string{}
	ports := FreePorts(t, 3)
	for i := range ports {
		file := filepath.Join(dir, fmt.Sprintf("node-%d.conf", i))
		if err := os.WriteFile(file, []byte(nodeConfig(dir, i, ports)), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := natsd.Start(t.Context(), natsd.Config{File: file})
		if err != nil {
			t.Fatal(err)
		}
		c.servers = append(c.servers, s)
	}
	nc, err := c.servers[0].Connect(nats.UserInfo("T0", "T0"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	AwaitLeader(t, js)
}

// nodeConfig is the configuration of the n-th server.
func nodeConfig(dir string, n int, ports []int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "server_name: node-%d\nhost: 127.0.0.1\nport: -1\n", n)
	fmt.Fprintf(&b, "jetstream: { store_dir: %q, max_file_store: 1TB, max_memory_store: 1GB }\n", filepath.Join(dir, fmt.Sprint("store-", n)))
	fmt.Fprintf(&b, "cluster: { name: test, host: 127.0.0.1, port: %d, routes: [", ports[n])
	for _, port := range ports {
		fmt.Fprintf(&b, "nats-route://127.0.0.1:%d,", port)
	}
	b.WriteString("] }\naccounts: {\n")
	for i := range maxAccounts {
		fmt.Fprintf(&b, "T%d: { jetstream: enabled, users: [{ user: T%d, password: T%d }] }\n", i, i, i)
	}
	b.WriteString("}\n")
	return b.String()
}

// stop stops the servers, if there are any.
func (c *cluster) stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		s.Shutdown()
	}
	if c.dir == "" {
		return nil
	}
	return os.RemoveAll(c.dir)
}

// replicated makes every stream with three replicas, whatever its configuration
// says: the code under test is that of a fleet with --replicas 3.
type replicated struct{ jetstream.JetStream }

const replicas = 3

// CreateStream implements [jetstream.StreamManager].
func (r replicated) CreateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	c.Replicas = replicas
	return r.JetStream.CreateStream(ctx, c)
}

// UpdateStream implements [jetstream.StreamManager].
func (r replicated) UpdateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	c.Replicas = replicas
	return r.JetStream.UpdateStream(ctx, c)
}

// CreateOrUpdateStream implements [jetstream.StreamManager].
func (r replicated) CreateOrUpdateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	c.Replicas = replicas
	return r.JetStream.CreateOrUpdateStream(ctx, c)
}

// CreateOrUpdateObjectStore implements [jetstream.ObjectStoreManager].
func (r replicated) CreateOrUpdateObjectStore(ctx context.Context, c jetstream.ObjectStoreConfig) (jetstream.ObjectStore, error) {
	c.Replicas = replicas
	return r.JetStream.CreateOrUpdateObjectStore(ctx, c)
}
