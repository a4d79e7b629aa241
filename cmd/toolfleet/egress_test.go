package main

import (
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/toolfleet/toolfleet/call"
)

// openedAddress is an address of loopback that the operator opens for tools.
const openedAddress = "127.7.7.7"

// reachTools may reach a server, a name that leads where nobody may go, and what
// is below a domain; may reach a server with a key that only the worker has; and
// names a secret that nobody grants.
const reachTools = `apiVersion: toolfleet/v1
kind: Tool
name: reach
description: A shell with a network.
image: local/shell:1
command: [/tool]
parameters: {type: object, properties: {script: {type: string}}}
network: {allow: ["example.com:%[1]s", "private.test:443"]}
---
apiVersion: toolfleet/v1
kind: Tool
name: keyed
description: A shell that has a key's use and not the key.
image: local/shell:1
command: [/tool]
parameters: {type: object, properties: {script: {type: string}}}
network: {allow: ["example.com:%[2]s"]}
secrets: [{name: one, inject: {host: "example.com:%[2]s", header: Authorization, format: "Bearer {}"}}]
---
apiVersion: toolfleet/v1
kind: Tool
name: forgotten
description: A shell whose secret nobody grants.
image: local/shell:1
command: [/tool]
parameters: {type: object, properties: {script: {type: string}}}
secrets: [{name: nobodys, env: NOBODYS}]
`

// TestEgressInAFleet has a real fleet run tools with a network, and reads what it
// tells of where they went: in the result, in the call's log, in the worker's log
// and in the metrics. Then a tool uses a key that is nowhere in its sandbox.
func TestEgressInAFleet(t *testing.T) {
	var mu sync.Mutex
	var keys []string
	plain := serveAt(t, false, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "plain %s\n", r.Host) })
	secure := serveAt(t, true, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, r.TLS.ServerName+" "+r.Header.Get("Authorization"))
		fmt.Fprintln(w, "secure")
	})
	plainPort, securePort := portOf(plain), portOf(secure)
	canary := canaryStarts[:11] + rand.Text() + "-9"

	state := t.TempDir()
	for i, text := range strings.Split(fmt.Sprintf(reachTools, plainPort, securePort), "---\n") {
		writeAll(t, filepath.Join(state, "tools", fmt.Sprintf("%d.tool.yaml", i)), text)
	}
	writeAll(t, filepath.Join(state, "secrets", "secrets.yaml"), fmt.Sprintf(canarySecrets, "keyed"))
	writeAll(t, filepath.Join(state, "secrets", "one"), canary+"\n")
	writeAll(t, filepath.Join(state, "ca.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
	t.Setenv(testNameServer, nameServer(t, map[string]string{"example.com.": openedAddress, "private.test.": "10.9.9.9"}))
	f := startFleet(t, state, "--egress-allow-private", openedAddress+"/32",
		"--secrets", filepath.Join(state, "secrets", "secrets.yaml"), "--secrets-ca", filepath.Join(state, "ca.pem"))
	hunt := newHunt(canary)

	a := f.call("reach", object{"script": "wget -qO- http://example.com:" + plainPort + "/; wget -qO- http://private.test:443/; wget -qO- http://other.test/; echo over"})
	if text := a.text(); text != "plain example.com:"+plainPort+"\nover\n" {
		t.Errorf("the tool says %q", text)
	}
	f.tellsOf(t, a, plainPort)

	a = f.call("keyed", object{"script": "wget -qO- http://example.com/; env; ls -R /run /workspace; " +
		"cat /proc/*/environ /proc/*/cmdline /proc/*/task/*/environ 2>/dev/null | tr '\\0' '\\n'; " +
		"find /run /tmp /workspace /etc /dev/shm -xdev -type f -exec cat {} + 2>/dev/null; echo looked"})
	if text := a.text(); !strings.HasPrefix(text, "secure\n") || !strings.HasSuffix(text, "looked\n") || strings.Contains(text, "[redacted]") {
		t.Errorf("the tool says %q", text)
	}
	mu.Lock()
	if want := "example.com Bearer " + canary; !slices.Equal(keys, []string{want}) {
		t.Errorf("the server got %q", keys)
	}
	mu.Unlock()
	_, raw := f.do("GET", "/v1/calls/"+a.ID+"/events", nil)
	hunt.in(t, "the call's events", raw)
	_, metrics := f.do("GET", "/metrics", nil)
	hunt.in(t, "/metrics", metrics)

	if a := f.call("forgotten", object{"script": "echo ran"}); a.kind() != call.KindDeclined || !strings.Contains(a.text(), "nobodys") {
		t.Errorf("without its secret it ended as %q: %s", a.kind(), a.text())
	}
	f.stop()
	hunt.below(t, filepath.Join(state, "state"))
	log, err := os.ReadFile(f.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	hunt.in(t, "the fleet's log", log)
	if warned := linesWith(log, "names secrets that it is not granted"); len(warned) != 1 || !strings.Contains(warned[0], "forgotten") || !strings.Contains(warned[0], "nobodys") {
		t.Errorf("of tools without their secrets the log says %q", warned)
	}
}

// tellsOf looks for the three places of a call: one that it reached, one whose
// address is nobody's to reach, and one that it may not know.
func (f *fleet) tellsOf(t *testing.T, a answer, port string) {
	t.Helper()
	want := map[string]struct{ verdict, reason string }{
		"example.com:" + port: {"connected", ""},
		"private.test:443":    {"denied", "address"},
		"other.test":          {"denied", "not_allowed"},
	}
	if a.Result.Execution == nil || len(a.Result.Execution.Egress) != len(want) {
		t.Fatalf("the result tells of %+v", a.Result.Execution)
	}
	_, events := f.do("GET", "/v1/calls/"+a.ID+"/events", nil)
	log, err := os.ReadFile(f.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range a.Result.Execution.Egress {
		w, known := want[k.To]
		moved := k.SentBytes > 0 && k.ReceivedBytes > 0
		if !known || k.Verdict != w.verdict || k.Reason != w.reason || k.Count < 1 || moved != (w.reason == "") {
			t.Errorf("the result tells of %+v", k)
		}
		if !strings.Contains(string(events), k.To) {
			t.Errorf("the call's log does not tell of %s", k.To)
		}
		lines := linesWith(log, k.To)
		if len(lines) != 1 {
			t.Errorf("the audit log has %q of %s", lines, k.To)
			continue
		}
		for _, part := range []string{"egress", a.ID, "reach", "default", w.verdict, w.reason} {
			if !strings.Contains(lines[0], part) {
				t.Errorf("the audit line %q lacks %q", lines[0], part)
			}
		}
		if w.reason == "" && !strings.Contains(lines[0], openedAddress) {
			t.Errorf("the audit line %q lacks the address", lines[0])
		}
	}
	_, metrics := f.do("GET", "/metrics", nil)
	for _, series := range []string{
		`toolfleet_egress_connections_total\{[^}]*verdict="connected"[^}]*\} 1\b`,
		`toolfleet_egress_connections_total\{[^}]*reason="address"[^}]*\} 1\b`,
		`toolfleet_egress_connections_total\{[^}]*reason="not_allowed"[^}]*\} [1-9]`,
		`toolfleet_egress_bytes_total\{[^}]*\} [1-9]`,
	} {
		if !regexp.MustCompile(series).Match(metrics) {
			t.Errorf("the metrics have nothing like %s: %s", series, strings.Join(linesWith(metrics, "toolfleet_egress"), "\n"))
		}
	}
}

func linesWith(text []byte, part string) (lines []string) {
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, part) {
			lines = append(lines, line)
		}
	}
	return lines
}

// serveAt starts a server at the address that is opened.
func serveAt(t *testing.T, secure bool, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", openedAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = l
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func portOf(s *httptest.Server) string {
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return port
}

// testNameServer is the variable that names the name server of a fleet in a test.
const testNameServer = "TOOLFLEET_TEST_NAME_SERVER"

// nameServer answers questions for names; all others do not exist.
func nameServer(t *testing.T, names map[string]string) (address string) {
	t.Helper()
	c, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true}, Questions: m.Questions}
			switch addr := names[q.Name.String()]; {
			case addr == "":
				reply.RCode = dnsmessage.RCodeNameError
			case q.Type == dnsmessage.TypeA:
				reply.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(addr).As4()},
				}}
			}
			if packed, err := reply.Pack(); err == nil {
				_, _ = c.WriteTo(packed, from)
			}
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-done })
	return c.LocalAddr().String()
}
