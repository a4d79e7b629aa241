package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/internal/health"
	"github.com/toolfleet/toolfleet/metrics"
	"github.com/toolfleet/toolfleet/queue"
)

// Tools is what the door tells about the catalogue. *catalog.Catalog is one.
type Tools interface {
	// List returns the tools that a tenant may see, sorted by name.
	List(tenant string) []*catalog.Spec
	// Resolve returns one of them.
	Resolve(tenant, name string) (*catalog.Spec, bool)
}

// Door is another protocol on the same listener. Its handlers find who asks in
// [dispatch.CallerOf]; bodies of POST requests are read, bounded and JSON by
// their content type. Whatever they refuse is a problem document.
type Door interface {
	// Routes adds the door's routes, under a path of its own.
	Routes(mux *http.ServeMux)
}

// Config of a [Server].
type Config struct {
	// Addr is host:port to listen on; "127.0.0.1:8080" by default. Port 0
	// takes a free one. Anything beyond loopback needs TokenFile.
	Addr string
	// TokenFile holds "tenant token" a line; see [ReadTokens]. Empty means
	// that every request is the default tenant's, and an operator's.
	TokenFile string
	// PublicURL is the base of the URLs of blobs, for a server that clients
	// reach by another name than the one they ask with, such as behind a proxy
	// that speaks TLS. By default it is "http://" and the request's Host.
	PublicURL string
	// SigningKey signs the URLs of blobs, at least 32 bytes. All dispatchers
	// of a fleet need the same. Nil makes a random one: URLs then end with
	// the process.
	SigningKey []byte
	// BlobURLLife is how long the URL of a blob is good; 24 h by default.
	BlobURLLife time.Duration
	// Drain is how long requests may go on after the end was asked for; then
	// streams are ended. 10 s by default.
	Drain time.Duration
	// KeepAlive is the pause after which a silent stream sends a comment; 15 s
	// by default, which is below the patience of usual proxies.
	KeepAlive time.Duration
	// MaxRequests bounds the requests served at once, waiting ones and
	// streams included; 4096 by default. More get 503. Health is exempt.
	MaxRequests int

	// Origins are the origins whose pages may use the paths that are meant for
	// browsers, such as "https://app.example"; none by default. It is no
	// substitute for a token: with a token file a page needs one too.
	Origins []string

	Dispatcher *dispatch.Dispatcher
	Tools      Tools
	// Catalogue is shown to operators and changed by them; nil leaves its paths
	// out.
	Catalogue Catalogue
	// Workers lists the living workers, for operators; nil leaves the path out.
	// queue.Registry.List is one.
	Workers func(context.Context) ([]queue.WorkerInfo, error)
	// Dispatchers lists the living dispatchers, for operators; nil leaves the
	// fleet's status out. queue.Dispatchers.List is one.
	Dispatchers func(context.Context) ([]queue.DispatcherInfo, error)
	// ID is this dispatcher's among them.
	ID string
	// Doors are further doors behind the same listener and guard.
	Doors []Door
	// Health says whether the process can serve now, and must not wait; nil means
	// that it can.
	Health func() health.Report
	// MetricsHandler serves /metrics; nil leaves the path out.
	MetricsHandler http.Handler
	// Metrics may be nil.
	Metrics *metrics.Metrics
	Logger  *slog.Logger
}

// withDefaults fills in what is not set.
func (c Config) withDefaults() Config {
	if c.Addr == "" {
		c.Addr = "127.0.0.1:8080"
	}
	if c.BlobURLLife == 0 {
		c.BlobURLLife = 24 * time.Hour
	}
	if c.Drain == 0 {
		c.Drain = 10 * time.Second
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.MaxRequests == 0 {
		c.MaxRequests = 4096
	}
	return c
}

// validate says everything that is wrong.
func (c Config) validate() error {
	var errs []error
	if c.Dispatcher == nil || c.Tools == nil || c.Logger == nil {
		errs = append(errs, errors.New("a dispatcher, tools and a logger are required"))
	}
	if c.BlobURLLife < 0 || c.Drain < 0 || c.KeepAlive < 0 || c.MaxRequests < 0 {
		errs = append(errs, errors.New("times and bounds must not be negative"))
	}
	if c.SigningKey != nil && len(c.SigningKey) < minSigningKey {
		errs = append(errs, fmt.Errorf("the signing key has %d bytes and needs %d", len(c.SigningKey), minSigningKey))
	}
	if c.PublicURL != "" {
		if u, err := url.Parse(c.PublicURL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			errs = append(errs, fmt.Errorf("public url %q is not http(s)://host[/path]", c.PublicURL))
		}
	}
	for _, o := range c.Origins {
		if err := checkOrigin(o); err != nil {
			errs = append(errs, err)
		}
	}
	if err := c.validateAddr(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("httpapi: %w", errors.Join(errs...))
	}
	return nil
}

// validateAddr refuses to serve strangers without tokens.
func (c Config) validateAddr() error {
	addr, err := net.ResolveTCPAddr("tcp", c.Addr)
	switch {
	case err != nil:
		return fmt.Errorf("address %q: %w", c.Addr, err)
	case c.TokenFile == "" && !addr.IP.IsLoopback():
		return fmt.Errorf("address %q is reachable from beyond this machine and needs a token file (one \"tenant token\" a line)", c.Addr)
	}
	return nil
}
