package containerd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/distribution/reference"
)

// Registries says how images are pulled. The zero value pulls anonymously, over
// TLS that the machine's own certificates vouch for.
type Registries struct {
	// Config is the path of a config.json as docker login writes it, with the
	// credentials for registries. It is read anew for every pull, so that
	// credentials may change. Empty means that all pulls are anonymous.
	Config string
	// PlainHTTP names the registries ("host" or "host:port") that are spoken to
	// without TLS, beside those on the loopback interface. Whoever sits between
	// reads the credentials and chooses what runs, unless a digest is pinned.
	PlainHTTP []string
	// CA is the path of a PEM file with certificates to trust beside the
	// machine's own.
	CA string
}

// Bounds of one request. A pull is many.
const (
	dialTimeout   = 10 * time.Second
	answerTimeout = 30 * time.Second
	// connections is how many layers come at a time from one host.
	connections = 6
	maxRedirect = 10
)

// registries speaks to registries for all pulls of a runtime.
type registries struct {
	cfg       Registries
	transport *http.Transport
	patient   *patientTransport // whose allow is each pull's own
}

func newRegistries(cfg Registries) (*registries, error) {
	roots, err := trusted(cfg.CA)
	if err != nil {
		return nil, err
	}
	g := &registries{cfg: cfg}
	if cfg.Config != "" {
		if _, err := g.config(); err != nil {
			return nil, err
		}
	}
	g.transport = &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: answerTimeout,
		MaxConnsPerHost:       connections,
		IdleConnTimeout:       answerTimeout,
		ForceAttemptHTTP2:     true,
	}
	g.patient = &patientTransport{next: &byHost{docker.NewHTTPFallback(g.transport), g.transport}, pause: firstPause}
	return g, nil
}

// client makes the requests of one pull from the registry of domain.
func (g *registries) client(domain string) *http.Client {
	t := *g.patient
	t.allow = func(req *http.Request) error { return g.allow(domain, req) }
	return &http.Client{CheckRedirect: redirect, Transport: &t}
}

// redirect takes the credentials off a request to another host than the first.
// The standard library leaves them on for another port and for a domain below.
func redirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirect {
		return corrupt("its registry sends us on more than %d times", maxRedirect)
	}
	if req.URL.Host != via[0].URL.Host {
		req.Header.Del("Authorization")
	}
	return nil
}

// trusted is nil for the machine's own certificates.
func trusted(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("containerd: read the registries' certificates: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("containerd: read the machine's certificates: %w", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("containerd: there is no certificate (PEM) in %s", file)
	}
	return roots, nil
}

// byHost speaks TLS to registries on the loopback interface as to all others,
// but plain HTTP to those that do not know it.
type byHost struct{ local, others http.RoundTripper }

func (b *byHost) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "https" && isLocal(req.URL.Host) {
		return b.local.RoundTrip(req)
	}
	return b.others.RoundTrip(req)
}

func isLocal(host string) bool {
	local, err := docker.MatchLocalhost(host)
	return err == nil && local
}

// plain reports whether host is known to be spoken to without TLS.
func (g *registries) plain(host string) bool { return slices.Contains(g.cfg.PlainHTTP, host) }

var (
	errPlainHTTP = errors.New("plain HTTP is for registries on the loopback interface and those of --registry-http")
	errHome      = errors.New("a registry elsewhere sends nobody to this machine")
)

// allow judges every request before it is made, also those that the registry of
// domain sends us on to: for a token, or for a layer. What listens on the loopback
// interface trusts whoever comes from there, and is no registry's to ask.
func (g *registries) allow(domain string, req *http.Request) error {
	local, listed := isLocal(req.URL.Host), g.plain(req.URL.Host)
	switch {
	case local && !listed && !isLocal(domain):
		return errHome
	case req.URL.Scheme == "https", req.URL.Scheme == "http" && (local || listed):
		return nil
	}
	return errPlainHTTP
}

// resolver speaks to the registry of one image, for one pull: credentials and
// tokens are kept no longer. Credentials go to the registry itself and to the
// token server that it names, never to a host that it redirects to.
func (g *registries) resolver(ctx context.Context, named reference.Named) remotes.Resolver {
	domain := reference.Domain(named)
	client := g.client(domain)
	hosts := docker.ConfigureDefaultRegistries(docker.WithClient(client),
		docker.WithPlainHTTP(func(host string) (bool, error) { return g.plain(host), nil }))
	return docker.NewResolver(docker.ResolverOptions{Hosts: func(host string) ([]docker.RegistryHost, error) {
		found, err := hosts(host)
		for i := range found {
			own := found[i].Host
			found[i].Authorizer = docker.NewDockerAuthorizer(docker.WithAuthClient(client),
				docker.WithAuthCreds(func(asking string) (user, secret string, err error) {
					if asking != own {
						return "", "", nil
					}
					return g.credentials(ctx, domain)
				}))
		}
		return found, err
	}})
}

func (g *registries) close() { g.transport.CloseIdleConnections() }
