package egress

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/toolfleet/toolfleet/catalog"
)

func entries(t testing.TB, all ...string) []catalog.Allowed {
	t.Helper()
	allowed, err := catalog.Network{Allow: all}.Allowed()
	if err != nil {
		t.Fatal(err)
	}
	return allowed
}

func TestAllows(t *testing.T) {
	list := entries(t, "api.example.com:443", "*.example.org:8443", "198.51.100.0/24:5432", "[2001:db8::1]:443")
	for address, want := range map[string]bool{
		"api.example.com:443": true, "API.example.com.:443": true, "api.example.com:80": false, "x.api.example.com:443": false,
		"evilapi.example.com:443": false, "api.example.com.evil.net:443": false, "example.org:8443": false, ".example.org:8443": false,
		"a.example.org:8443": true, "a.b.example.org:8443": true, "a.example.org:443": false, "aexample.org:8443": false,
		"198.51.100.7:5432": true, "198.51.101.7:5432": false, "198.51.100.7:80": false, "[::ffff:198.51.100.7]:5432": true,
		"[2001:db8::1]:443": true, "[2001:db8::2]:443": false, "3325256711:5432": false, "0xc6.0x33.0x64.7:5432": false, "0306.063.0144.7:5432": false,
		"198.51.25607:5432": false, "api.example.com\x00.evil.net:443": false, "api.example.com": false, "": false, ":443": false,
	} {
		to, err := splitTarget(address)
		if got := err == nil && allows(list, to); got != want {
			t.Errorf("%q is allowed: %v (%v)", address, got, err)
		}
	}
}

// answers is a resolver that gives another answer each time.
type answers struct {
	all   [][]netip.Addr
	asked []string
}

func (a *answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	a.asked = append(a.asked, host)
	next := a.all[0]
	a.all = a.all[1:]
	return next, nil
}

func addrs(all ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range all {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// One bad address spoils a name, wherever it stands.
func TestEveryAddressIsJudged(t *testing.T) {
	for _, all := range [][]netip.Addr{
		addrs("169.254.169.254"), addrs("93.184.216.34", "10.0.0.1"), addrs("10.0.0.1", "93.184.216.34"), addrs("2606:4700::1", "::ffff:127.0.0.1"),
	} {
		r := &answers{all: [][]netip.Addr{all}}
		p := &Policy{Resolver: r, ownAddr: func(netip.Addr) bool { return false }}
		_, err := p.addresses(t.Context(), target{name: "api.example.com", port: 443})
		var d *Denial
		if !errors.As(err, &d) || d.Reason != reasonAddress {
			t.Errorf("%v: %v", all, err)
		}
		if len(r.asked) != 1 || r.asked[0] != "api.example.com." {
			t.Errorf("asked for %q, want the whole name once", r.asked)
		}
	}
}

// A name that answers the second time with another address gains nothing: it is
// asked once, and the kernel's last word is judged again.
func TestRebinding(t *testing.T) {
	r := &answers{all: [][]netip.Addr{addrs("93.184.216.34"), addrs("127.0.0.1")}}
	p := &Policy{Resolver: r, ownAddr: func(netip.Addr) bool { return false }}
	all, err := p.addresses(t.Context(), target{name: "api.example.com", port: 443})
	if err != nil || len(all) != 1 || all[0] != netip.MustParseAddr("93.184.216.34") || len(r.asked) != 1 {
		t.Fatalf("%v %v, asked %v", all, err, r.asked)
	}
	var d *Denial
	if err := p.check("tcp4", "127.0.0.1:443", nil); !errors.As(err, &d) {
		t.Errorf("the socket is opened to loopback: %v", err)
	}
	if _, err := p.dial(t.Context(), target{name: "api.example.com", port: 443}, addrs("127.0.0.1")); !errors.As(err, &d) {
		t.Errorf("dialed loopback: %v", err)
	}
}

func question(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 7, RecursionDesired: true})
	if err := errors.Join(b.StartQuestions(), b.Question(dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET})); err != nil {
		t.Fatal(err)
	}
	out, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestNames(t *testing.T) {
	names := map[string]netip.Addr{"api.example.com": nameAddress(0)}
	for _, c := range []struct {
		name  string
		kind  dnsmessage.Type
		code  dnsmessage.RCode
		addrs int
	}{
		{"api.example.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"API.Example.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"api.example.com.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 0},
		{"localhost.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"other.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"secret.in.a.name.evil.net.", dnsmessage.TypeTXT, dnsmessage.RCodeNameError, 0},
		{"metadata.google.internal.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
	} {
		answer, missing := answerName(question(t, c.name, c.kind), names)
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil {
			t.Fatal(err)
		}
		if m.RCode != c.code || len(m.Answers) != c.addrs || m.ID != 7 || (missing != "") != (c.code != dnsmessage.RCodeSuccess) {
			t.Errorf("%s %s: %v with %d answers, missing %q", c.name, c.kind, m.RCode, len(m.Answers), missing)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add(question(f, "api.example.com.", dnsmessage.TypeA))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, q []byte) {
		answer, missing := answerName(q, map[string]netip.Addr{"api.example.com": nameAddress(0)})
		var m dnsmessage.Message
		if answer != nil && (m.Unpack(answer) != nil || !m.Response) || len(missing) > 253 {
			t.Errorf("%x is answered %x, missing %q", q, answer, missing)
		}
	})
}

func FuzzSOCKS(f *testing.F) {
	name := append([]byte{5, 1, 0, 5, 1, 0, 3, 15}, "api.example.com\x01\xbb"...)
	f.Add(name)
	f.Add([]byte{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 80})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		to, refusal, err := readSOCKS(r, &bytes.Buffer{})
		if read := len(b) - r.Len(); read > 600 {
			t.Errorf("%d bytes were read of a request", read)
		}
		if err == nil && refusal == socksOK && to.name == "" && !to.addr.IsValid() {
			t.Errorf("%x goes nowhere", b)
		}
	})
}

func TestSOCKS(t *testing.T) {
	port := binary.BigEndian.AppendUint16(nil, 443)
	for _, c := range []struct {
		name    string
		request []byte
		want    string
		refusal byte
		broken  bool
	}{
		{"name", append([]byte("\x05\x01\x00\x05\x01\x00\x03\x0fapi.example.com"), port...), "api.example.com:443", socksOK, false},
		{"IPv4", append([]byte("\x05\x02\x02\x00\x05\x01\x00\x01\xc6\x33\x64\x07"), port...), "198.51.100.7:443", socksOK, false},
		{"mapped", append([]byte("\x05\x01\x00\x05\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01"), port...), "127.0.0.1:443", socksOK, false},
		{"decimal", append([]byte("\x05\x01\x00\x05\x01\x00\x03\x0a2130706433"), port...), "", socksNotAllowed, false},
		{"bind", append([]byte("\x05\x01\x00\x05\x02\x00\x01\xc6\x33\x64\x07"), port...), "", socksNoSuchCommand, false},
		{"udp", append([]byte("\x05\x01\x00\x05\x03\x00\x01\xc6\x33\x64\x07"), port...), "", socksNoSuchCommand, false},
		{"no method", append([]byte("\x05\x01\x02\x05\x01\x00\x01\xc6\x33\x64\x07"), port...), "", 0, true},
		{"SOCKS4", []byte("\x04\x01\x00\x50\x7f\x00\x00\x01\x00"), "", 0, true},
		{"cut", []byte("\x05\x01\x00\x05\x01"), "", 0, true},
	} {
		to, refusal, err := readSOCKS(bytes.NewReader(c.request), &bytes.Buffer{})
		if got := to.String(); (err != nil) != c.broken || refusal != c.refusal || c.want != "" && got != c.want {
			t.Errorf("%s: %s, %d, %v", c.name, got, refusal, err)
		}
	}
}

var _ net.Conn = (*conn)(nil)
