package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/image"
	"github.com/toolfleet/toolfleet/worker/egress"
)

// What is downloaded once, and how many small requests follow it.
const (
	fetchBytes    = 256 << 20
	fetchRequests = 201
)

// serverAddress is loopback's, and opened by the operator's list. Its name leads
// there by a resolver of the bench: what resolvers take is not measured.
const (
	serverAddress = "127.7.7.7"
	serverName    = "server.test"
	fetchImage    = "local/fetch:1"
	fetchTimeout  = 5 * time.Minute
)

// egressBench is a runtime of its own and a server. One program asks it, in a
// sandbox whose network allows that and as a process of this machine: what lies
// between the two is the agent, the frames and the worker's half.
type egressBench struct {
	fetch  string // the program
	daemon *containerd.Daemon
	rt     *containerd.Runtime
	server *byteServer
}

func openEgress(ctx context.Context, c Config) (e *egressBench, err error) {
	e = &egressBench{fetch: c.Fetch}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("egress: %w", err), e.close())
		}
	}()
	dir := filepath.Join(c.Dir, "egress")
	if e.daemon, err = containerd.StartDaemon(ctx, containerd.DaemonConfig{BinDir: c.BinDir, StateDir: dir}); err != nil {
		return e, err
	}
	if e.rt, err = containerd.New(containerd.Config{
		Address: e.daemon.Address(), Owner: "bench-egress", AgentPath: c.Agent, BinDir: c.BinDir, Logger: slog.New(slog.DiscardHandler),
	}); err != nil {
		return e, err
	}
	img, err := image.Recipe{Add: []string{c.Fetch + ":" + image.ToolPath}}.Build(ctx)
	if err != nil {
		return e, fmt.Errorf("%w; run make bench", err)
	}
	var archive bytes.Buffer
	if err := image.WriteArchive(&archive, fetchImage, img); err != nil {
		return e, err
	}
	if _, err := e.rt.Import(ctx, &archive); err != nil {
		return e, err
	}
	e.server, err = newByteServer(ctx)
	return e, err
}

func (e *egressBench) close() error {
	var errs []error
	if e.server != nil {
		errs = append(errs, e.server.close())
	}
	if e.rt != nil {
		errs = append(errs, e.rt.Close())
	}
	if e.daemon != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		errs = append(errs, e.daemon.Stop(ctx))
	}
	return errors.Join(errs...)
}

// egress takes the mebibytes a second and the median time of a small request,
// through a sandbox and without one.
func (b *bench) egress(ctx context.Context, _ int, out map[string][]float64) error {
	bare, err := b.network.outside(ctx)
	if err != nil {
		return fmt.Errorf("egress: without a sandbox: %w", err)
	}
	boxed, err := b.network.inside(ctx)
	if err != nil {
		return fmt.Errorf("egress: %w", err)
	}
	out["egress_bare_throughput"] = []float64{bare.throughput}
	out["egress_throughput"] = []float64{boxed.throughput}
	out["egress_added_latency"] = []float64{boxed.latency - bare.latency}
	return nil
}

// fetched is what the program found out: MiB per second, and milliseconds.
type fetched struct{ throughput, latency float64 }

func args(host, port string) []string {
	return []string{net.JoinHostPort(host, port), strconv.Itoa(fetchBytes), strconv.Itoa(fetchRequests)}
}

func (e *egressBench) outside(ctx context.Context) (fetched, error) {
	text, err := exec.CommandContext(ctx, e.fetch, args(serverAddress, e.server.port())...).Output()
	if err != nil {
		return fetched{}, err
	}
	return parseFetched(text)
}

func (e *egressBench) inside(ctx context.Context) (f fetched, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	allowed, err := catalog.Network{Allow: []string{net.JoinHostPort(serverName, e.server.port())}}.Allowed()
	if err != nil {
		return f, err
	}
	policy := egress.Policy{
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix(serverAddress + "/32")}, Resolver: toServer{},
		// The limits of a call are not what is measured.
		Limits: egress.Limits{Rate: 1 << 40, Bytes: 1 << 40},
	}
	network := policy.Call(egress.Options{Allowed: allowed, Logger: slog.New(slog.DiscardHandler)})
	defer network.Close()
	sb, err := sandbox.Open(ctx, e.rt, "bench-"+strings.ToLower(rand.Text()[:12]), sandbox.Spec{
		Image: fetchImage, Pull: "never", Runtime: "runc", Isolation: "container",
	})
	if err != nil {
		return f, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, sb.Close(ctx))
	}()
	exit, err := sb.Run(ctx, sandbox.Process{
		Argv: append([]string{image.ToolPath}, args(serverName, e.server.port())...), Env: network.Env(), Listeners: network.Listeners(),
	}, sandbox.Sink{})
	if err != nil {
		return f, err
	}
	if f, err = parseFetched(exit.Stdout); err != nil {
		return f, fmt.Errorf("%w; it ended as %s, and said %q", err, exit.Cause, exit.Stderr)
	}
	return f, nil
}

func parseFetched(text []byte) (f fetched, err error) {
	var seconds float64
	if _, err := fmt.Sscan(string(text), &seconds, &f.latency); err != nil {
		return f, fmt.Errorf("the program printed %q: %w", text, err)
	}
	f.throughput = fetchBytes / mebi / seconds
	return f, nil
}

// toServer leads every name to the server.
type toServer struct{}

func (toServer) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr(serverAddress)}, nil
}

// byteServer reads a number from each connection, sends so many bytes and ends it.
type byteServer struct {
	listener net.Listener
	serving  sync.WaitGroup
}

func newByteServer(ctx context.Context) (*byteServer, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(serverAddress, "0"))
	if err != nil {
		return nil, err
	}
	s := &byteServer{listener: l}
	s.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.serving.Go(func() { serveBytes(c) })
		}
	})
	return s, nil
}

func (s *byteServer) port() string {
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	return port
}

// close waits for the connections that there are; each has a deadline.
func (s *byteServer) close() error {
	err := s.listener.Close()
	s.serving.Wait()
	return err
}

func serveBytes(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(fetchTimeout))
	line, err := bufio.NewReader(io.LimitReader(c, 32)).ReadString('\n')
	if err != nil {
		return
	}
	left, err := strconv.Atoi(strings.TrimSpace(line))
	chunk := make([]byte, min(256<<10, max(0, left)))
	for err == nil && left > 0 {
		var n int
		n, err = c.Write(chunk[:min(left, len(chunk))])
		left -= n
	}
}
