package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Config says how the server is run. The zero value is not usable: StoreDir or
// File is required.
type Config struct {
	// File is a configuration of nats-server's own, such as those in deploy/nats.
	// It says everything then, and of the other fields only Log is heeded.
	File string
	// StoreDir is where JetStream keeps its files. A second start on the same
	// directory finds everything again. Two servers must not share one.
	StoreDir string
	// Host is the address to listen on; empty means 127.0.0.1. There is no
	// authentication, so anything but loopback gives the fleet away.
	Host string
	// Port is the port to listen on. 0 means no listener at all (only
	// [Server.Connect] reaches the server), RandomPort a free one.
	Port int
	// MaxPayload is the largest message, in bytes; 0 means 1 MiB.
	MaxPayload int32
	// MaxStore bounds JetStream's files, in bytes; 0 means 16 GiB. The streams'
	// own limits must fit in it, or they cannot be created.
	MaxStore int64
	// MaxMemory bounds JetStream's memory, in bytes; 0 means 256 MiB. Only
	// consumers' states live there, since every stream of ours is on disk.
	MaxMemory int64
	// SyncAlways makes the server write every message through to the disk
	// before it acknowledges. Without it, a power cut (not a crash of the
	// process) may take the last two minutes of acknowledged messages along.
	SyncAlways bool
	// Cluster joins the server to others; nil means that it stands alone.
	Cluster *Cluster
	// Log takes the server's own messages; nil means none.
	Log *slog.Logger
}

// Cluster says how a server finds its peers, all on this host: enough to see
// the fleet work on replicated streams, and no more.
type Cluster struct {
	// Server is this server's name, unique in the cluster.
	Server string
	// Port is where it listens for its peers.
	Port int
	// Peers are the ports of all servers of the cluster, its own among them.
	Peers []int
}

// RandomPort asks for any free port.
const RandomPort = server.RANDOM_PORT

// readyTimeout bounds the start. An empty store is ready in 10 ms; one that
// must be recovered after a crash reads its last blocks first.
const readyTimeout = 30 * time.Second

// Server is a running server. It is safe for concurrent use.
type Server struct {
	srv    *server.Server
	listen bool
}

// Start starts a server and returns once it takes connections. The context
// bounds the wait only: a started server runs until [Server.Shutdown].
func Start(ctx context.Context, c Config) (*Server, error) {
	opts, err := options(c)
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("natsd: %w", err)
	}
	fatal := &fatal{}
	srv.SetLoggerV2(logger{c.Log, fatal}, false, false, false)
	s := &Server{srv: srv, listen: !opts.DontListen}
	srv.Start()
	if err := s.awaitReady(ctx, fatal); err != nil {
		s.Shutdown()
		return nil, err
	}
	return s, nil
}

// options turns a Config into the server's own options.
func options(c Config) (*server.Options, error) {
	if c.File != "" {
		opts, err := server.ProcessConfigFile(c.File)
		if err != nil {
			return nil, fmt.Errorf("natsd: %w", err)
		}
		opts.NoSigs, opts.NoLog, opts.DisableJetStreamBanner = true, c.Log == nil, true
		return opts, nil
	}
	if c.StoreDir == "" {
		return nil, errors.New("natsd: StoreDir is empty: name a directory for JetStream's files")
	}
	opts := &server.Options{
		ServerName:             "toolfleet",
		Host:                   or(c.Host, "127.0.0.1"),
		Port:                   or(c.Port, server.RANDOM_PORT),
		DontListen:             c.Port == 0,
		NoSigs:                 true,
		NoLog:                  c.Log == nil,
		DisableJetStreamBanner: true,
		MaxPayload:             or(c.MaxPayload, 1<<20),
		JetStream:              true,
		StoreDir:               c.StoreDir,
		JetStreamMaxStore:      or(c.MaxStore, 16<<30),
		JetStreamMaxMemory:     or(c.MaxMemory, 256<<20),
		SyncAlways:             c.SyncAlways,
	}
	if c.Cluster != nil {
		opts.ServerName = c.Cluster.Server
		opts.Cluster = server.ClusterOpts{Name: "toolfleet", Host: "127.0.0.1", Port: c.Cluster.Port}
		for _, port := range c.Cluster.Peers {
			opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))})
		}
	}
	return opts, nil
}

// or is v, or what stands in for its zero value.
func or[T comparable](v, zero T) T {
	var z T
	if v == z {
		return zero
	}
	return v
}

// awaitReady polls in small steps, since the server's own wait knows no
// context.
func (s *Server) awaitReady(ctx context.Context, fatal *fatal) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout,
		fmt.Errorf("natsd: not ready after %s", readyTimeout))
	defer cancel()
	for !s.srv.ReadyForConnections(10 * time.Millisecond) {
		if err := fatal.get(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if !s.srv.JetStreamEnabled() {
		return errors.New("natsd: JetStream could not be enabled")
	}
	return nil
}

// ClientURL is the address for other processes, or "" when there is no
// listener.
func (s *Server) ClientURL() string {
	if !s.listen {
		return ""
	}
	return s.srv.ClientURL()
}

// Connect makes a connection inside the process: no socket, and it works
// without a listener. It is retried for ever unless opts say otherwise. The
// caller closes it.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{nats.InProcessServer(s.srv), nats.MaxReconnects(-1)}, opts...)
	nc, err := nats.Connect("", all...)
	if err != nil {
		return nil, fmt.Errorf("natsd: connect: %w", err)
	}
	return nc, nil
}

// Shutdown stops the server and waits until it has: streams are flushed, all
// connections are closed. It may be called more than once.
func (s *Server) Shutdown() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}
