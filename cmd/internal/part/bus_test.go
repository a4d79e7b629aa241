package part

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/toolfleet/toolfleet/internal/natsd"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

// A server that cannot hold a fleet is told by what to do about it. No such
// server can be embedded, so a few lines of the protocol stand in for it: the
// greeting, and "nobody answers" to every request.
func TestServerThatCannotHoldAFleet(t *testing.T) {
	for version, want := range map[string]string{
		"2.10.29": "is version 2.10.29, and 2.11 or later is needed",
		"1.4.1":   "is version 1.4.1, and 2.11 or later is needed",
		"2.11.0":  "start it with `nats-server -js -sd DIRECTORY`",
		"custom":  "JetStream is off on the NATS server",
	} {
		t.Run(version, func(t *testing.T) {
			nc, err := Dial(NATSConfig{NATS: "nats://" + bareServer(t, version)}, RoleDispatcher, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_, err = OpenBus(t.Context(), nc, BusOptions{}, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// bareServer is a NATS server without JetStream; it returns its address.
func bareServer(t *testing.T, version string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // takes no time that a context could bound
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { greet(conn, version) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		served.Wait()
	})
	return l.Addr().String()
}

// greet serves one connection until the client closes it.
func greet(conn net.Conn, version string) {
	defer conn.Close()
	fmt.Fprintf(conn, "INFO {\"server_id\":\"x\",\"version\":%q,\"headers\":true,\"max_payload\":1048576}\r\n", version)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) == 1 && f[0] == "PING":
			fmt.Fprint(conn, "PONG\r\n")
		case len(f) == 4 && f[0] == "PUB": // subject, reply to, length
			fmt.Fprintf(conn, "HMSG %s 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", f[2])
		}
	}
}

// TestPain38ServerThatTakesSmallMessages: the limit is told at the start, and not
// by the first call that is over it.
func TestPain38ServerThatTakesSmallMessages(t *testing.T) {
	const limit = 256 << 10
	nc := natsdtest.Connect(t, natsdtest.StartWith(t, natsd.Config{StoreDir: t.TempDir(), MaxPayload: limit}))
	_, err := OpenBus(t.Context(), nc, BusOptions{}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(limit)) || !strings.Contains(err.Error(), "max_payload") {
		t.Errorf("got %v", err)
	}
}
