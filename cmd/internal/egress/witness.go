package egress

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// permitted are the places that the tool may reach.
var permitted = []string{"198.18.0.1:80", "198.18.0.1:443", "198.18.0.1:8443"}

// witness answers on every address of its namespace, and remembers where.
type witness struct {
	abstract  string
	tcp       []net.Listener
	udp       []net.PacketConn
	names     net.PacketConn
	accepting sync.WaitGroup

	mu    sync.Mutex // guards the fields below
	hits  []string   // places that must not be reached, and were
	asked map[string]int
}

var (
	tcpPorts = []int{22, 53, 80, 443, 853, 4222, 8443}
	udpPorts = []int{53, 443, 5353}
)

// nameServer is the resolver of the worker in this namespace.
const nameServer = "127.0.0.1:5300"

func newWitness(ctx context.Context) (w *witness, err error) {
	if err := furnish(ctx); err != nil {
		return nil, err
	}
	w = &witness{abstract: "toolfleet-egress-" + rand.Text(), asked: map[string]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("egress: %w", err), w.close())
		}
	}()
	var lc net.ListenConfig
	for _, port := range tcpPorts {
		l, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return w, err
		}
		w.tcp = append(w.tcp, l)
	}
	l, err := lc.Listen(ctx, "unix", "@"+w.abstract)
	if err != nil {
		return w, err
	}
	w.tcp = append(w.tcp, l)
	for _, port := range udpPorts {
		c, err := lc.ListenPacket(ctx, "udp", fmt.Sprintf(":%d", port))
		if err != nil {
			return w, err
		}
		w.udp = append(w.udp, c)
	}
	if w.names, err = lc.ListenPacket(ctx, "udp", nameServer); err != nil {
		return w, err
	}
	for _, l := range w.tcp {
		w.accepting.Go(func() { w.accept(l) })
	}
	for _, c := range w.udp {
		w.accepting.Go(func() { w.receive(c) })
	}
	w.accepting.Go(w.answer)
	return w, w.sees(ctx)
}

func (w *witness) close() error {
	var errs []error
	for _, l := range w.tcp {
		errs = append(errs, l.Close())
	}
	for _, c := range w.udp {
		errs = append(errs, c.Close())
	}
	if w.names != nil {
		errs = append(errs, w.names.Close())
	}
	w.accepting.Wait()
	return errors.Join(errs...)
}

// sees calls every address from here: what a tool reached would be seen.
func (w *witness) sees(ctx context.Context) error {
	for _, a := range append(slices.Clone(addresses), "127.0.0.1/32", "::1/128") {
		at := netip.AddrPortFrom(netip.MustParsePrefix(a).Addr(), 4222).String()
		c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", at)
		if err != nil {
			return err
		}
		said, err := io.ReadAll(c)
		if err = errors.Join(err, c.Close()); err != nil || !strings.Contains(string(said), "WITNESS "+at) {
			return fmt.Errorf("the witness at %s said %q: %w", at, said, err)
		}
	}
	if seen, _ := w.take(); len(seen) != len(addresses)+2 {
		return fmt.Errorf("the witness saw %v", seen)
	}
	return nil
}

// take returns what must not have been reached and was, and the names that the
// worker was asked for, since the last time.
func (w *witness) take() (hits, asked []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	hits = w.hits
	for name := range w.asked {
		asked = append(asked, name)
	}
	w.hits, w.asked = nil, map[string]int{}
	return hits, asked
}

func (w *witness) hit(place string) {
	if slices.Contains(permitted, place) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.hits) < 1000 {
		w.hits = append(w.hits, place)
	}
}

// accept answers connections like a server of HTTP that redirects to the cloud's
// metadata, without reading a word, and says where it is.
func (w *witness) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		place := "an abstract socket"
		if at, err := netip.ParseAddrPort(c.LocalAddr().String()); err == nil {
			place = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
		}
		w.hit(place)
		w.accepting.Go(func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			body := "WITNESS " + place + "\n"
			_, _ = fmt.Fprintf(c, "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			if t, ok := c.(*net.TCPConn); ok {
				_ = t.CloseWrite()
			}
			_, _ = io.Copy(io.Discard, c)
		})
	}
}

func (w *witness) receive(c net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		_, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		w.hit("udp " + c.LocalAddr().String())
		_, _ = c.WriteTo([]byte("WITNESS udp:"+c.LocalAddr().String()), from)
	}
}

// zone is what names lead to; the n-th question takes the n-th set of addresses,
// round and round.
var zone = map[string][][]string{
	"allowed.test":      {{"198.18.0.1"}},
	"any.wild.test":     {{"198.18.0.1"}},
	"private.wild.test": {{"10.9.9.9"}},
	"wild.test":         {{"198.18.0.1"}},
	"notwild.test":      {{"198.18.0.1"}},
	"dns.google":        {{"8.8.8.8"}},
	"private.test":      {{"10.9.9.9"}},
	"metadata.test":     {{"169.254.169.254"}},
	"metadata6.test":    {{"fd00:ec2::254"}},
	"loopback.test":     {{"127.0.0.1"}},
	"mapped.test":       {{"::ffff:169.254.169.254"}},
	"nat64.test":        {{"64:ff9b::a9fe:a9fe"}},
	"sixtofour.test":    {{"2002:a9fe:a9fe::1"}},
	"own.test":          {{"93.184.216.34"}},
	"mixed.test":        {{"198.18.0.1", "10.9.9.9"}},
	"rebind.test":       {{"198.18.0.1"}, {"169.254.169.254"}, {"10.9.9.9"}},
}

func (w *witness) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", nameServer)
	}}
}

// answer is the resolver's server.
func (w *witness) answer() {
	buf := make([]byte, 2048)
	for {
		n, from, err := w.names.ReadFrom(buf)
		if err != nil {
			return
		}
		if reply, err := w.resolve(buf[:n]); err == nil {
			_, _ = w.names.WriteTo(reply, from)
		}
	}
}

func (w *witness) resolve(question []byte) ([]byte, error) {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	w.mu.Lock()
	turn := w.asked[name]
	if q.Type == dnsmessage.TypeA || turn == 0 {
		w.asked[name]++
	}
	w.mu.Unlock()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	sets := zone[name]
	if sets == nil {
		m.RCode = dnsmessage.RCodeNameError
		return m.Pack()
	}
	for _, a := range sets[turn%len(sets)] {
		addr := netip.MustParseAddr(a)
		rh := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}
		switch {
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: rh, Body: &dnsmessage.AResource{A: addr.As4()}})
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: rh, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return m.Pack()
}
