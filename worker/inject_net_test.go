package worker

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/worker/egress"
)

// inOwnNetwork runs the calling test once more, in a process that has a network
// namespace to itself, and reports whether this is that process: a tool's
// listeners have fixed addresses and ports, and here sandboxes have none of their
// own.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()
	const inside = "TOOLFLEET_TEST_OWN_NETWORK"
	if os.Getenv(inside) == "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("in a network of its own: %v\n%s", err, out)
		}
		return false
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
	return true
}

// loopback resolves every name to this machine.
type loopback struct{}

func (loopback) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// TestInjectThroughASandbox: a tool that speaks plain HTTP to a name of its
// sandbox reaches the host by TLS and with the key, which is nowhere in the call,
// though the host repeats it and the tool prints what it says.
func TestInjectThroughASandbox(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	var got []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		fmt.Fprintf(w, "hello, %v", r.Header)
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	h := newHouse(t)
	log := h.vault()
	h.Roots = x509.NewCertPool()
	h.Roots.AddCert(server.Certificate())
	h.Egress = &egress.Policy{Resolver: loopback{}, AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	const request = `ask() { exec 4<>/dev/tcp/127.84.1.1/80; printf "GET $1 HTTP/1.1\r\nHost: $2\r\nAuthorization: mine\r\nConnection: close\r\n\r\n" >&4; cat <&4; }
		ask /one example.com; ask /two example.com; ask /three example.org; env`
	host := "example.com:" + port
	job := h.admit("", injects(host, "authorization", "Bearer {}"), func(j *catalog.Job) {
		j.Spec.Network.Allow = []string{host}
		j.Spec.Command = []string{"/bin/bash", "-c", request}
	})
	r := h.run(job)
	wantKind(t, r, "")
	text := words(t, r)
	if strings.Count(text, "hello, ") != 2 || strings.Count(text, "X-Echo: Bearer [redacted]") != 2 || strings.Count(text, "HTTP/1.1 421") != 1 {
		t.Errorf("the tool says %s", text)
	}
	if want := "[GET /one Bearer " + canary + " GET /two Bearer " + canary + "]"; fmt.Sprint(got) != want {
		t.Errorf("the host got %q", got)
	}
	all := h.everything(job) + log.String()
	for _, trace := range traces() {
		if strings.Contains(all, trace) {
			t.Fatalf("%q is in %.4000s", trace, all)
		}
	}
	if len(r.Execution.Egress) != 1 || r.Execution.Egress[0].Verdict != "connected" {
		t.Errorf("it went to %+v", r.Execution.Egress)
	}
}
