package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// patience is long beside a refusal, which comes at once.
const patience = 3 * time.Second

const proxy = "127.84.0.1:3128"

// A witness says where it was reached.
var witness = regexp.MustCompile(`WITNESS (\S+)`)

// permitted are the places that the allow list and the operator let through.
var permitted = map[string]bool{"198.18.0.1:80": true, "198.18.0.1:443": true, "198.18.0.1:8443": true}

// judge reads what came of a way: open when a witness answered that it should not
// have reached.
func judge(said string, err error) (bool, string) {
	for _, m := range witness.FindAllStringSubmatch(said, -1) {
		if !permitted[m[1]] {
			return true, "reached " + m[1]
		}
	}
	if err != nil {
		return false, err.Error()
	}
	line, _, _ := strings.Cut(said, "\n")
	return false, fmt.Sprintf("%.100q", line)
}

func dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: patience}).DialContext(context.Background(), network, address)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// tcp connects and listens.
func tcp(address string) func(bait) (bool, string) {
	return func(bait) (bool, string) {
		c, err := dial("tcp", address)
		if err != nil {
			return judge("", err)
		}
		defer c.Close()
		said, err := io.ReadAll(c)
		return judge(string(said), err)
	}
}

// udp sends a datagram and listens.
func udp(address string) func(bait) (bool, string) {
	return func(bait) (bool, string) {
		c, err := dial("udp", address)
		if err != nil {
			return judge("", err)
		}
		defer c.Close()
		if _, err := c.Write(query("leak.udp.test", 1)); err != nil {
			return judge("", err)
		}
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		return judge(string(buf[:n]), err)
	}
}

// say connects to the proxy and says something; what comes back is judged.
func say(lines ...string) func(bait) (bool, string) {
	return func(bait) (bool, string) {
		said, err := converse(strings.Join(lines, "\r\n") + "\r\n\r\n")
		return judge(said, err)
	}
}

func converse(words string) (string, error) {
	c, err := dial("tcp", proxy)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, words); err != nil {
		return "", err
	}
	said, err := io.ReadAll(c)
	return string(said), err
}

// connect asks the proxy for a tunnel.
func connect(address string) func(bait) (bool, string) {
	return say("CONNECT "+address+" HTTP/1.1", "Host: "+address)
}

// socksTo asks for a connection by a name, socksAt by an address.
func socksTo(command byte, name string, port uint16) func(bait) (bool, string) {
	host := append([]byte{3, byte(len(name))}, name...)
	return socksWords(command, host, port)
}

func socksAt(address string, port uint16) func(bait) (bool, string) {
	ip := net.ParseIP(address)
	if v4 := ip.To4(); v4 != nil && !strings.Contains(address, ":") {
		return socksWords(1, append([]byte{1}, v4...), port)
	}
	return socksWords(1, append([]byte{4}, ip.To16()...), port)
}

func socksWords(command byte, host []byte, port uint16) func(bait) (bool, string) {
	words := append([]byte{5, 1, 0, 5, command, 0}, host...)
	return func(bait) (bool, string) {
		said, err := converse(string(binary.BigEndian.AppendUint16(words, port)))
		return judge(said, err)
	}
}

// query is a question for a name's address, or its text.
func query(name string, kind uint16) []byte {
	q := []byte{0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		q = append(append(q, byte(len(label))), label...)
	}
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(append(q, 0), kind), 1)
}

// asks sends a question to the sandbox's own name server; it is open when the
// answer is anything but that there is no such name. What the host's resolver has
// heard is the host's to see.
func asks(name string, kind uint16) func(bait) (bool, string) {
	return func(bait) (bool, string) {
		c, err := dial("udp", "127.0.0.1:53")
		if err != nil {
			return judge("", err)
		}
		defer c.Close()
		if _, err := c.Write(query(name, kind)); err != nil {
			return judge("", err)
		}
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		if err != nil || n < 12 {
			return judge("", err)
		}
		if code := buf[3] & 15; code != 3 {
			return true, "the answer has code " + strconv.Itoa(int(code))
		}
		return false, "no such name"
	}
}

// hello begins TLS with the name of another host, with the one that is allowed.
func hello(server string) func(bait) (bool, string) {
	return func(bait) (bool, string) {
		c, err := dial("tcp", "allowed.test:443")
		if err != nil {
			return judge("", err)
		}
		defer c.Close()
		heard := &recorder{Conn: c}
		err = tls.Client(heard, &tls.Config{ServerName: server, MinVersion: tls.VersionTLS12}).HandshakeContext(context.Background())
		return judge(string(heard.said), err)
	}
}

type recorder struct {
	net.Conn
	said []byte
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if len(r.said) < 4096 {
		r.said = append(r.said, b[:n]...)
	}
	return n, err
}

// follow asks an allowed host that redirects to a forbidden one.
func follow(through string) func(bait) (bool, string) {
	return func(bait) (bool, string) {
		t := &http.Transport{DisableKeepAlives: true}
		if through != "" {
			t.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: through})
		}
		client := &http.Client{Transport: t, Timeout: patience}
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://allowed.test/", nil)
		if err != nil {
			return true, err.Error()
		}
		answer, err := client.Do(req)
		if err != nil {
			return judge("", err)
		}
		defer answer.Body.Close()
		said, err := io.ReadAll(answer.Body)
		return judge(string(said), err)
	}
}

// crowd opens more connections at once than a call may have.
func crowd(bait) (bool, string) {
	held := 0
	for range 100 {
		c, err := dial("tcp", "allowed.test:443")
		if err != nil {
			continue
		}
		defer c.Close()
		if line, _ := bufio.NewReader(c).ReadString('\n'); strings.HasPrefix(line, "HTTP/1.1") {
			held++
		}
	}
	return held > 64, fmt.Sprintf("%d connections at once", held)
}

// allowed says why what is allowed cannot be reached; then nothing is proven.
func allowed() string {
	for what, try := range map[string]func(bait) (bool, string){
		"a name": tcp("allowed.test:443"), "a wildcard by CONNECT": connect("any.wild.test:443"),
		"a wildcard by SOCKS": socksTo(1, "any.wild.test", 443), "a network": connect("198.18.0.1:8443"),
	} {
		permitted = map[string]bool{} // so that all that is reached is told
		reached, why := try(bait{})
		permitted = map[string]bool{"198.18.0.1:80": true, "198.18.0.1:443": true, "198.18.0.1:8443": true}
		if !reached {
			return what + " that is allowed cannot be reached: " + why
		}
	}
	return ""
}
