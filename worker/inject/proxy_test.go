package inject

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/worker/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const canary = "CANARY-7f3a_9+QpXvB2mK_8sLdWz4"

// redactor knows the canary.
func redactor(t *testing.T) *secret.Redactor {
	t.Helper()
	dir := t.TempDir()
	file := "apiVersion: toolfleet/v1\nkind: Secrets\nsecrets: [{name: k, file: k, tools: [t], tenants: [a]}]\n"
	for name, text := range map[string]string{"s.yaml": file, "k": canary} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := secret.Open(filepath.Join(dir, "s.yaml"), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	values, err := s.Resolve("t", "a", []string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	return secret.NewRedactor(values...)
}

// bench is a host with a certificate for example.com, a proxy to it, and a
// client that reaches the proxy and nothing else.
type bench struct {
	t      *testing.T
	proxy  *Proxy
	client *http.Client
	dialed []string
}

func newBench(t *testing.T, host http.HandlerFunc) *bench {
	t.Helper()
	server := httptest.NewUnstartedServer(host)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	b := &bench{t: t}
	b.proxy = New(Config{
		Host: "example.com", Port: "443", Roots: roots, Redact: redactor(t),
		Headers: []Header{{"Authorization", "Bearer " + canary}, {"x-api-key", canary}},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			b.dialed = append(b.dialed, address)
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		},
	})
	t.Cleanup(b.proxy.Close)
	b.client = &http.Client{
		Transport:     &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return b.connect(), nil }},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

// connect is the tool's end of a connection that the proxy serves.
func (b *bench) connect() net.Conn {
	tool, worker := net.Pipe()
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.proxy.Serve(ctx, worker)
	}()
	b.t.Cleanup(func() { cancel(); <-done })
	return tool
}

// get sends a request and returns the status and all of the answer as text.
func (b *bench) get(url string, change ...func(*http.Request)) (int, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range change {
		f(req)
	}
	res, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.StatusCode, fmt.Sprint(res.Header) + string(text)
}

// TestInjects: the host gets the secret, once, whatever the tool has sent in its
// place, and the rest of the request as it was.
func TestInjects(t *testing.T) {
	var got *http.Request
	var sent []byte
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		sent, _ = io.ReadAll(r.Body)
		fmt.Fprint(w, "hello")
	})
	status, text := b.get("http://example.com/a%2Fb?q=1&q=2", func(r *http.Request) {
		r.Method, r.Body = http.MethodPut, io.NopCloser(strings.NewReader("the body"))
		r.Header = http.Header{
			"Authorization": {"mine"}, "X-Api-Key": {"a", "b"}, "X_Api_Key": {"c"}, "x-API-key": {"d"},
			"Connection": {"Authorization, X-Api-Key"}, "X-Other": {"kept"}, "Trailer": {"Authorization"}, "Range": {"bytes=0-0"},
		}
	})
	if status != 200 || !strings.HasSuffix(text, "hello") {
		t.Fatalf("%d %s", status, text)
	}
	h := got.Header
	if fmt.Sprint(h["Authorization"], h["X-Api-Key"]) != fmt.Sprintf("[Bearer %s] [%s]", canary, canary) || strings.Contains(fmt.Sprint(h), "_Api_") || len(got.Trailer) > 0 {
		t.Errorf("the host got %v, %v", h, got.Trailer)
	}
	if got.Method != http.MethodPut || got.RequestURI != "/a%2Fb?q=1&q=2" || got.Host != "example.com" || string(sent) != "the body" || h.Get("X-Other") != "kept" {
		t.Errorf("the host got %s %s of %s, %q, %v", got.Method, got.RequestURI, got.Host, sent, h)
	}
	if h.Get("Range") != "" || h.Get("X-Forwarded-For") != "" || h.Get("Accept-Encoding") != "identity" || got.ProtoMajor != 1 {
		t.Errorf("the host got %s, %v", got.Proto, h)
	}
	if fmt.Sprint(b.dialed) != "[example.com:443]" {
		t.Errorf("dialed %v", b.dialed)
	}
}

// TestEchoesAreRedacted: a host that repeats what it was sent does not give the
// tool its secret: not in the body, however it comes in pieces, nor in a header.
func TestEchoesAreRedacted(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		auth := r.Header.Get("Authorization")
		w.Header().Set("X-Echo", auth)
		w.Header().Set("Location", "https://elsewhere.example/?"+auth)
		w.Header().Set("X-"+strings.ReplaceAll(canary, "+", "x"), "1")
		w.Header().Set("Trailer", "X-Late")
		w.WriteHeader(http.StatusFound)
		for _, c := range auth {
			fmt.Fprint(w, string(c))
			_ = http.NewResponseController(w).Flush()
		}
		fmt.Fprint(w, base64.StdEncoding.EncodeToString([]byte("me:"+canary)), " end")
		w.Header().Set("X-Late", auth)
	})
	status, text := b.get("http://example.com/")
	if status != http.StatusFound || strings.Contains(text, canary[:12]) || strings.Contains(text, "9+QpXvB2mK") || !strings.HasSuffix(text, " end") || strings.Count(text, "[redacted]") < 4 {
		t.Errorf("%d %s", status, text)
	}
	if len(b.dialed) != 1 {
		t.Errorf("a redirect was followed: %v", b.dialed)
	}
}

func TestCompressedIsRefused(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, r.Header.Get("Authorization"))
		_ = z.Close()
	})
	if status, text := b.get("http://example.com/"); status != http.StatusBadGateway || !strings.Contains(text, "compresses") {
		t.Errorf("%d %s", status, text)
	}
}

// TestRefuses: what is not a plain request for the one host is refused, and the
// connection ends with it. No host sees any of it.
func TestRefuses(t *testing.T) {
	var requests int
	b := newBench(t, func(http.ResponseWriter, *http.Request) { requests++ })
	for _, c := range []struct{ name, request, status string }{
		{"another host", "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "421"},
		{"a longer name", "GET / HTTP/1.1\r\nHost: example.com.evil.org\r\n\r\n", "421"},
		{"another port", "GET / HTTP/1.1\r\nHost: example.com:8080\r\n\r\n", "421"},
		{"no host", "GET / HTTP/1.0\r\n\r\n", "421"},
		{"two hosts", "GET / HTTP/1.1\r\nHost: example.com\r\nHost: example.org\r\n\r\n", "400"},
		{"a url for another", "GET http://example.org/ HTTP/1.1\r\nHost: example.com\r\n\r\n", "421"},
		{"connect", "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n", "4"},
		{"options of the server", "OPTIONS * HTTP/1.1\r\nHost: example.com\r\n\r\n", "405"},
		{"websocket", "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "501"},
		{"h2c", "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "501"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "4"},
		{"two lengths", "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
		{"an odd coding", "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "501"},
		{"a folded header", "GET / HTTP/1.1\r\nHost: example.com\r\nA : b\r\n\r\n", "400"},
		{"a header too long", "GET / HTTP/1.1\r\nHost: example.com\r\nA: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n", "431"},
		{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := b.connect()
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.WriteString(conn, c.request) }()
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "HTTP/1.") || !strings.HasPrefix(line[9:], c.status) {
				t.Errorf("%q, %v", line, err)
			}
		})
	}
	if requests > 0 || len(b.dialed) > 0 {
		t.Errorf("%d requests, dialed %v", requests, b.dialed)
	}
}

// TestSmuggling: of a request with two ends the host sees one request, whose end
// is the one that was read here.
func TestSmuggling(t *testing.T) {
	var seen []string
	b := newBench(t, func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		seen = append(seen, r.Method+" "+r.URL.Path+" "+string(text))
	})
	conn := b.connect()
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(conn, "POST /one HTTP/1.1\r\nHost: example.com\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n"+
			"0\r\n\r\nGET /two HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	}()
	answers, _ := io.ReadAll(conn)
	if strings.Contains(fmt.Sprint(seen), "/two") || bytes.Count(answers, []byte("HTTP/1.1 200")) > 1 {
		t.Errorf("the host saw %q, the tool %q", seen, answers)
	}
}

// TestOnlyItsHost: a host with a certificate for another name, or of an unknown
// authority, gets nothing.
func TestOnlyItsHost(t *testing.T) {
	var requests int
	b := newBench(t, func(http.ResponseWriter, *http.Request) { requests++ })
	cfg := b.proxy.cfg
	for name, change := range map[string]func(*Config){
		"another name":         func(c *Config) { c.Host = "example.org" },
		"an unknown authority": func(c *Config) { c.Roots = x509.NewCertPool() },
	} {
		c := cfg
		change(&c)
		b.proxy = New(c)
		if status, text := b.get("http://" + c.Host + "/"); status != http.StatusBadGateway || !strings.Contains(text, "certificate") {
			t.Errorf("%s: %d %s", name, status, text)
		}
		b.proxy.Close()
		b.client.CloseIdleConnections()
	}
	if requests > 0 {
		t.Errorf("%d requests", requests)
	}
}

// TestEndsWithItsCall: a request that waits ends when the call does.
func TestEndsWithItsCall(t *testing.T) {
	asked := make(chan struct{})
	b := newBench(t, func(_ http.ResponseWriter, r *http.Request) { close(asked); <-r.Context().Done() })
	tool, worker := net.Pipe()
	defer tool.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.proxy.Serve(ctx, worker)
	}()
	if _, err := io.WriteString(tool, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-asked
	cancel()
	<-done
}

// TestClientThatSendsNoMore: a client may end its half of the connection with the
// request, as busybox's wget does, and still wants the answer.
func TestClientThatSendsNoMore(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "sent %q", text)
	})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ request, says string }{
		{"POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 3\r\n\r\nabc", `sent "abc"`},
		{"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "421"},
	} {
		tool, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		worker, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tool, c.request); err != nil {
			t.Fatal(err)
		}
		if err := tool.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b.proxy.Serve(t.Context(), worker)
		answer, err := io.ReadAll(tool)
		if err != nil || !strings.Contains(string(answer), c.says) {
			t.Errorf("%q, %v", answer, err)
		}
		_ = tool.Close()
	}
}
