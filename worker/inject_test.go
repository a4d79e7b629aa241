package worker

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/worker/secret"
)

func injects(host, header, format string) func(*catalog.Job) {
	return func(j *catalog.Job) {
		j.Spec.Network.Allow = []string{"example.com:443"}
		j.Spec.Secrets = append(j.Spec.Secrets, catalog.Secret{Name: "key", Inject: &catalog.Inject{Host: host, Header: header, Format: format}})
	}
}

// TestInjectedSecretStaysHere: a secret that is injected is neither in the tool's
// environment nor among its files; it is in the headers of requests to its host,
// and not in what the host says of them.
func TestInjectedSecretStaysHere(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%t %t %s", r.Header.Get("Authorization") == "Bearer "+canary, r.Header.Get("X-Key") == canary, r.Header)
	}))
	defer server.Close()
	h := newHouse(t)
	h.vault()
	h.Roots = x509.NewCertPool()
	h.Roots.AddCert(server.Certificate())
	a := h.attempt(h.admit("", injects("example.com", "authorization", "Bearer {}"), injects("example.com:443", "X-Key", "")))
	if err := a.takeSecrets(); err != nil {
		t.Fatal(err)
	}
	if len(a.secrets.env)+len(a.secrets.files) > 0 {
		t.Errorf("the sandbox gets %q and %d files", a.secrets.env, len(a.secrets.files))
	}
	proxies := a.proxies(func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "example.com:443" {
			t.Errorf("dialed %s", address)
		}
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	})
	if len(proxies) != 1 {
		t.Fatalf("%d proxies", len(proxies))
	}
	defer proxies["example.com"].Close()
	tool, here := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		proxies["example.com"].Serve(t.Context(), here)
	}()
	if _, err := io.WriteString(tool, "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(tool), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	_ = tool.Close()
	<-done
	if !strings.HasPrefix(string(text), "true true map") || strings.Contains(string(text), canary[:12]) {
		t.Errorf("the host said %q", text)
	}
}

// TestNoHeader: a secret of several lines cannot be a header, and is named.
func TestNoHeader(t *testing.T) {
	h := newHouse(t)
	h.vault()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"s.yaml": "apiVersion: toolfleet/v1\nkind: Secrets\nsecrets: [{name: key, file: k, tools: [sh], tenants: [default]}]\n",
		"k":      "first line\nX-Other: second line\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if h.Secrets, err = secret.Open(filepath.Join(dir, "s.yaml"), nil, h.Logger); err != nil {
		t.Fatal(err)
	}
	job := h.admit("echo ran", injects("example.com", "Authorization", ""))
	for range call.MaxAttempts - 1 {
		if err := h.deliver(t.Context(), job); err == nil {
			t.Fatal("not given back")
		}
	}
	r := h.run(job)
	wantKind(t, r, call.KindInternal)
	if text := words(t, r); !strings.Contains(text, `"key"`) || strings.Contains(text, "second") || h.pool.started.Load() > 0 {
		t.Errorf("it said %q", text)
	}
}
