package part

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

const deployed = "../../../deploy/nats"

// trial is what deploy/nats/keys.sh made, and the servers that run with it.
type trial struct {
	dir     string
	servers []*natsd.Server
}

// startTrial runs keys.sh and starts the servers of a configuration file, each
// with the environment that the script wrote for it, on ports that are free.
func startTrial(t *testing.T, file string, nodes int) *trial {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	script := exec.CommandContext(t.Context(), filepath.Join(deployed, "keys.sh"), dir)
	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("keys.sh: %v\n%s", err, out)
	}
	ports, health := natsdtest.FreePorts(t, 3), natsdtest.FreePorts(t, nodes)
	environment(t, filepath.Join(dir, "nats.env"))
	tr := &trial{dir: dir}
	for i := range nodes {
		environment(t, filepath.Join(dir, fmt.Sprintf("node-%d.env", i+1)))
		t.Setenv("NATS_PORT", fmt.Sprint(natsd.RandomPort))
		t.Setenv("NATS_CLUSTER_PORT", fmt.Sprint(ports[i]))
		t.Setenv("NATS_HEALTH", fmt.Sprintf("127.0.0.1:%d", health[i]))
		for j, port := range ports {
			t.Setenv(fmt.Sprintf("NATS_ROUTE_%d", j+1), fmt.Sprintf("nats-route://127.0.0.1:%d", port))
		}
		tr.servers = append(tr.servers, natsdtest.StartWith(t, natsd.Config{File: filepath.Join(deployed, file)}))
	}
	return tr
}

// environment sets the variables of a file as a shell would.
func environment(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		t.Setenv(key, value)
	}
}

// config is how a role reaches the n-th server, and the others when that is away.
func (tr *trial) config(role string, n int) NATSConfig {
	var urls []string
	for i := range tr.servers {
		urls = append(urls, tr.servers[(n+i)%len(tr.servers)].ClientURL())
	}
	return NATSConfig{
		NATS: strings.Join(urls, ","), NATSNKey: filepath.Join(tr.dir, role+".nk"), NATSCA: filepath.Join(tr.dir, "ca.pem"),
	}
}

// join connects a role to the n-th server. Whatever the server refuses to it
// from then on fails the test.
func (tr *trial) join(t *testing.T, role string, n int) *nats.Conn {
	t.Helper()
	nc, err := Dial(tr.config(role, n), role, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Errorf("%s: %v", role, err) })
	return nc
}

// wantRefused publishes and wants the server to say that this role may not.
func wantRefused(t *testing.T, nc *nats.Conn, subject string) {
	t.Helper()
	wantViolation(t, nc, subject, func() error {
		// A request, for that is what the API takes; the reply is not waited for.
		return nc.PublishRequest(subject, nc.NewInbox(), []byte("{}"))
	})
}

// wantUnheard subscribes and wants the server to say that this role may not.
func wantUnheard(t *testing.T, nc *nats.Conn, subject string) {
	t.Helper()
	wantViolation(t, nc, subject, func() error {
		_, err := nc.SubscribeSync(subject)
		return err
	})
}

func wantViolation(t *testing.T, nc *nats.Conn, subject string, do func() error) {
	t.Helper()
	refused := make(chan struct{}, 1)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+subject+`"`) {
			select {
			case refused <- struct{}{}:
			default:
			}
		}
	})
	if err := do(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-refused:
	case <-time.After(10 * time.Second):
		t.Errorf("%s was not refused", subject)
	}
}

// strangerKey makes the seed of a user that no server knows.
func strangerKey(t *testing.T) string {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "stranger.nk")
	if err := os.WriteFile(name, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func jetStream(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
