package part

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// NATSConfig says how a part reaches its NATS servers. The tags are kong's.
type NATSConfig struct {
	NATS      string `name:"nats" help:"URLs of the NATS servers, separated by commas; nats://127.0.0.1:4222 by default, and for up a server of its own." placeholder:"URL" env:"TOOLFLEET_NATS"`
	NATSNKey  string `name:"nats-nkey" help:"File with the nkey seed (SU…) of this part's user." placeholder:"FILE" type:"path" env:"TOOLFLEET_NATS_NKEY"`
	NATSCreds string `name:"nats-creds" help:"File with the credentials (a JWT and its seed) of this part's user." placeholder:"FILE" type:"path" env:"TOOLFLEET_NATS_CREDS"`
	NATSCA    string `name:"nats-ca" help:"File with the certificates that the NATS servers' are checked by; default: the system's." placeholder:"FILE" type:"path" env:"TOOLFLEET_NATS_CA"`
	NATSCert  string `name:"nats-cert" help:"File with this part's own certificate, for servers that ask for one." placeholder:"FILE" type:"path" env:"TOOLFLEET_NATS_CERT"`
	NATSKey   string `name:"nats-key" help:"File with the key of that certificate." placeholder:"FILE" type:"path" env:"TOOLFLEET_NATS_KEY"`

	Lease time.Duration `help:"How long a worker, and the call in its hands, counts as alive without a heartbeat, of which there are three in that time. The same for every part of a fleet, and 3s at the least." default:"15s" env:"TOOLFLEET_LEASE"`
}

// StreamsConfig is what the part that makes the streams is told. The tags are
// kong's.
type StreamsConfig struct {
	Replicas int   `help:"NATS servers that keep each stream: 3 in a cluster. 0 leaves streams as they are, and makes new ones with 1." default:"0" enum:"0,1,3,5" env:"TOOLFLEET_REPLICAS"`
	LogGiB   int64 `name:"log-gib" help:"What the log of all calls may take on each server, in GiB. 0 leaves it as it is, and makes a new one with 4." default:"0" env:"TOOLFLEET_LOG_GIB"`
}

// LogBytes is what the log may take, in bytes; 0 leaves it as it is.
func (c StreamsConfig) LogBytes() int64 { return max(c.LogGiB, 0) << 30 }

// Servers are the URLs that Dial asks.
func (c NATSConfig) Servers() string {
	if c.NATS == "" {
		return nats.DefaultURL
	}
	return c.NATS
}

// What a part is to the NATS server. The replies to its requests come to
// subjects that begin with its role, so that a server can keep one role from
// reading the replies to another.
const (
	RoleDispatcher = "dispatcher"
	RoleWorker     = "worker"
	// RoleFleet is both in one process.
	RoleFleet = "fleet"
)

// inboxPrefix begins the subjects of replies.
const inboxPrefix = "_INBOX."

// Dial connects to NATS servers that run elsewhere, and goes on trying for ever
// once one was reached: running calls outlive an absent server. role is what
// this process is to them. No error and no log line holds a secret.
func Dial(c NATSConfig, role string, logger *slog.Logger) (*nats.Conn, error) {
	opts, user, err := c.credentials()
	if err != nil {
		return nil, err
	}
	opts = append(opts,
		nats.Name("toolfleet "+role),
		nats.CustomInboxPrefix(inboxPrefix+role),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500*time.Millisecond),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				logger.Warn("NATS is away; trying again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { logger.Info("NATS is back", "server", Redacted(nc.ConnectedUrl())) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			logger.Warn("the NATS server refuses something; compare its permissions with deploy/nats/accounts.conf", "role", role, "error", err)
		}),
	)
	nc, err := nats.Connect(c.Servers(), opts...)
	if errors.As(err, new(*url.Error)) {
		err = errUnreadable // the other holds the URL, and that the password
	}
	if err != nil {
		return nil, fmt.Errorf("no NATS server at %s: %w%s", Redacted(c.Servers()), err, advice(err, user))
	}
	return nc, nil
}

// errUnreadable says that a server's URL is none.
var errUnreadable = errors.New("a URL cannot be read; what is no letter or digit in a password has to be escaped, such as @ as %40")

// credentials reads the files that say who connects. They are read once more
// by the client at each connect, so a changed one is taken without a restart.
// user names the user where it is known; it is public.
func (c NATSConfig) credentials() (opts []nats.Option, user string, err error) {
	if c.NATSNKey != "" && c.NATSCreds != "" {
		return nil, "", errors.New("nats-nkey and nats-creds are two ways to say who connects; give one")
	}
	if (c.NATSCert == "") != (c.NATSKey == "") {
		return nil, "", errors.New("nats-cert and nats-key belong together; give both or none")
	}
	for _, f := range []struct{ flag, name string }{
		{"nats-nkey", c.NATSNKey}, {"nats-creds", c.NATSCreds}, {"nats-ca", c.NATSCA}, {"nats-cert", c.NATSCert}, {"nats-key", c.NATSKey},
	} {
		if f.name == "" {
			continue
		}
		if _, err := os.ReadFile(f.name); err != nil {
			return nil, "", fmt.Errorf("%s: %w", f.flag, err)
		}
	}
	if c.NATSNKey != "" {
		opt, err := nats.NkeyOptionFromSeed(c.NATSNKey)
		if err != nil {
			return nil, "", fmt.Errorf("nats-nkey: %s holds no user's nkey seed (a line that begins with SU); deploy/nats/keys.sh makes one", c.NATSNKey)
		}
		var o nats.Options
		if err := opt(&o); err != nil {
			return nil, "", fmt.Errorf("nats-nkey: %w", err)
		}
		opts, user = append(opts, opt), o.Nkey
	}
	if c.NATSCreds != "" {
		opts = append(opts, nats.UserCredentials(c.NATSCreds))
	}
	if c.NATSCA != "" {
		if pem, err := os.ReadFile(c.NATSCA); err != nil || !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, "", fmt.Errorf("nats-ca: %s holds no certificate in PEM", c.NATSCA)
		}
		opts = append(opts, nats.RootCAs(c.NATSCA))
	}
	if c.NATSCert != "" {
		opts = append(opts, nats.ClientCert(c.NATSCert, c.NATSKey))
	}
	return opts, user, nil
}

// advice says what to do about a connection that was refused.
func advice(err error, user string) string {
	var (
		unverified *tls.CertificateVerificationError
		unnamed    x509.HostnameError
	)
	switch {
	case errors.As(err, &unnamed):
		return "; the server's certificate is for other names: ask by one of those, or give the server a certificate with this one"
	case errors.As(err, &unverified):
		return "; the server's certificate is signed by a stranger: name the file of its CA with --nats-ca"
	case errors.Is(err, nats.ErrAuthorization) && user == "":
		return "; the server wants to know who connects: name a file with --nats-nkey or --nats-creds"
	case errors.Is(err, nats.ErrAuthorization):
		return "; the server does not know the user " + user + ": its configuration has to name that key"
	case errors.Is(err, nats.ErrSecureConnRequired):
		return "; the server wants TLS: ask by tls://, and name the file of its CA with --nats-ca"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "; the server has no TLS, and a certificate or tls:// asks for it"
	}
	return ""
}

// Redacted is a server's URL, or a list of them, without passwords and tokens.
// As for the client, "nats://" is meant where no scheme stands.
func Redacted(urls string) string {
	list := strings.Split(urls, ",")
	for i, raw := range list {
		full := strings.TrimSpace(raw)
		if !strings.Contains(full, "://") {
			full = "nats://" + full
		}
		switch u, err := url.Parse(full); {
		case err != nil, u.User == nil && strings.Contains(full, "@"): // a password that was not escaped
			list[i] = "an unreadable URL"
		case u.User != nil:
			u.User = url.User("xxxxx") // a name alone is a token
			list[i] = u.String()
		}
	}
	return strings.Join(list, ",")
}
