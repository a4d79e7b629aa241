package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/toolfleet/toolfleet/internal/health"
	"github.com/toolfleet/toolfleet/internal/httpd"
)

// Server is the HTTP door. Make one with [New] and run it once.
type Server struct {
	config Config

	listener net.Listener
	tokens   *Tokens // nil: everybody is the default tenant
	signer   *signer
	handler  http.Handler
	requests chan struct{} // one per request being served
	stopping atomic.Bool
	status   lastStatus
}

// New checks the configuration and begins to listen; nothing is served before
// Run. It fails, saying what to do, when the address could be reached from
// beyond this machine and there is no token file.
func New(c Config) (*Server, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Server{config: c, requests: make(chan struct{}, c.MaxRequests)}
	if c.TokenFile != "" {
		tokens, err := ReadTokenFile(c.TokenFile)
		if err != nil {
			return nil, err
		}
		s.tokens = tokens
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", c.Addr) //nolint:forbidigo // listening takes no time that a context could bound
	if err != nil {
		return nil, fmt.Errorf("httpapi: %w", err)
	}
	s.listener = l
	s.signer = newSigner(c.SigningKey, c.BlobURLLife)
	s.handler = s.routes()
	return s, nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL is the server's own base URL, "http://host:port".
func (s *Server) URL() string { return "http://" + s.Addr().String() }

// Close stops listening. It is for a server that is not going to Run, which
// does it by itself.
func (s *Server) Close() error { return s.listener.Close() }

// Bounds of a connection. There is no bound on the time of a whole request:
// one that waits for its call takes as long as the call. Each single write has
// one, and so has the reading of a body.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
)

// Run serves until ctx is done. Then it is not ready any more, takes no new
// connection, lets requests go on for the drain time, ends what still streams
// or waits (clients resume at another dispatcher), and returns when every
// handler has.
func (s *Server) Run(ctx context.Context) error {
	requests, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(errShutdown)
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),
	}
	quick := httpd.Quick(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.listener) }()

	select {
	case err := <-served:
		return fmt.Errorf("httpapi: %w", err)
	case <-ctx.Done():
	}
	s.stopping.Store(true)
	err := s.shutdown(context.WithoutCancel(ctx), quick, end)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	if err != nil {
		return fmt.Errorf("httpapi: shutdown: %w", err)
	}
	return nil
}

// endTimeout is how long handlers may take to return once they were told.
const endTimeout = 5 * time.Second

func (s *Server) shutdown(ctx context.Context, quick func(context.Context) error, end context.CancelCauseFunc) error {
	stop := time.AfterFunc(s.config.Drain, func() { end(errShutdown) })
	defer stop.Stop()
	ctx, cancel := context.WithTimeout(ctx, s.config.Drain+endTimeout)
	defer cancel()
	return quick(ctx)
}

// report says whether the server should get requests now.
func (s *Server) report() health.Report {
	var stopping error
	if s.stopping.Load() {
		stopping = errShutdown
	}
	report := health.Report{}.With("doors", stopping)
	if s.config.Health != nil {
		report = append(report, s.config.Health()...)
	}
	return report
}
