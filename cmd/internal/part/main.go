package part

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"sigs.k8s.io/yaml"

	"github.com/toolfleet/toolfleet/internal/httpd"
)

// LogConfig says how a part logs: to standard error, as text or JSON.
type LogConfig struct {
	LogLevel  slog.Level `help:"debug, info, warn or error." default:"info" env:"TOOLFLEET_LOG_LEVEL"`
	LogFormat string     `help:"text or json." default:"text" enum:"text,json" env:"TOOLFLEET_LOG_FORMAT"`
}

// Logger makes the part's logger, writing to w.
func (c LogConfig) Logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// YAML is a kong loader for a configuration file: one mapping, flag names as
// keys. A flag on the command line or in the environment wins over the file.
func YAML(r io.Reader) (kong.Resolver, error) {
	raw, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(raw, &values); err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	return resolver(values), nil
}

// resolver answers for flags with what a file says.
type resolver map[string]any

// Validate refuses a key that names no flag: a misspelt setting must not be
// taken in silence.
func (r resolver) Validate(app *kong.Application) error {
	known := map[string]bool{}
	_ = kong.Visit(app, func(node kong.Visitable, next kong.Next) error { // the visitor below never fails
		if flag, ok := node.(*kong.Flag); ok {
			known[flag.Name] = true
		}
		return next(nil)
	})
	for _, key := range slices.Sorted(maps.Keys(r)) {
		if !known[key] {
			return fmt.Errorf("configuration file: %q is no flag", key)
		}
	}
	return nil
}

// Resolve implements [kong.Resolver].
func (r resolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	return r[flag.Name], nil
}

// Signals returns a context that ends at the first SIGTERM or SIGINT, and calls
// hurry at the second. The returned stop waits for the goroutine behind it.
func Signals(parent context.Context, hurry func()) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT)
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, f := range []func(){cancel, hurry} {
			select {
			case <-ch:
				f()
			case <-quit:
				return
			}
		}
		<-quit
	})
	return ctx, func() {
		signal.Stop(ch)
		close(quit)
		wg.Wait()
		cancel()
	}
}

// Listen takes an address, so that a taken one is told before anything starts.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s; name another address with --listen: %w", address, err)
	}
	return l, nil
}

// Serve serves h on l until ctx is done. It is for a worker's health and
// metrics; the dispatcher's doors have a server of their own.
func Serve(ctx context.Context, l net.Listener, h http.Handler, logger *slog.Logger) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	shutdown := httpd.Quick(srv)
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- shutdown(end)
	}()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// Registry makes a registry that also shows the process and the Go runtime.
func Registry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// Observing calls observe before each scrape of h.
func Observing(h http.Handler, observe func(context.Context)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		observe(r.Context())
		h.ServeHTTP(w, r)
	})
}
