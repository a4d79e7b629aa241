package catalog

import (
	"errors"
	"fmt"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
)

// InjectPort is the port of a host's name inside the sandbox on which a tool
// speaks plain HTTP, to have a secret injected.
const InjectPort = 80

// Inject puts a secret into a header of requests to a host, so that the tool
// itself never sees it.
type Inject struct {
	// Host is one of the exact names of network.allow: "api.example.com", which is
	// its port 443, or "api.example.com:8443".
	Host string `json:"host"`
	// Header is the name of the header, such as Authorization.
	Header string `json:"header"`
	// Format is the header's value, with {} in the secret's place; {} by default.
	Format string `json:"format,omitempty"`
}

// Target is the host and the port that requests go to.
func (i *Inject) Target() (Allowed, error) {
	host := i.Host
	if !strings.Contains(host, ":") {
		host += ":443"
	}
	a, err := ParseAllowed(host)
	if err == nil && a.Name == "" {
		err = fmt.Errorf("expected an exact name, got %q", cut(i.Host))
	}
	return a, err
}

// target is where a secret is injected.
func (s *Secret) target() (Allowed, error) {
	if s.Inject == nil {
		return Allowed{}, errNotInjected
	}
	return s.Inject.Target()
}

var errNotInjected = errors.New("catalog: the secret is not injected")

// Value is the header's value for a secret.
func (i *Inject) Value(secret string) string {
	if i.Format == "" {
		return secret
	}
	return strings.Replace(i.Format, "{}", secret, 1)
}

var (
	headerForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$")
	formatForm = regexp.MustCompile(`^[!-~]([ -~]{0,254}[!-~])?$`)
)

// ownHeaders decide how a request is sent, and are not the tool's author's.
var ownHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Expect", "Host", "Keep-Alive", "Range", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade",
}

// inject checks a header that is to hold a secret, and names its place.
func (v *validator) inject(s *Spec, field string, i *Inject) (place string) {
	header := textproto.CanonicalMIMEHeaderKey(i.Header)
	switch {
	case !headerForm.MatchString(i.Header):
		v.fault(field+".header", "expected the name of a header such as Authorization, got %q", cut(i.Header))
	case slices.Contains(ownHeaders, header) || strings.HasPrefix(header, "Proxy-"):
		v.fault(field+".header", "%s decides how a request is sent and is no place for a secret", header)
	}
	if i.Format != "" && (!formatForm.MatchString(i.Format) || strings.Count(i.Format, "{}") != 1) {
		v.fault(field+".format", "expected text with {} in the secret's place, as in Bearer {}, got %q", cut(i.Format))
	}
	to, err := i.Target()
	if err != nil {
		v.fault(field+".host", "%v", err)
		return ""
	}
	allowed, err := s.Network.Allowed()
	if err != nil {
		return "" // which is told of the network
	}
	if !slices.Contains(allowed, to) {
		v.fault(field+".host", "expected a host that network.allow has as well, as %s:%d", to.Name, to.Port)
	}
	for _, other := range s.Secrets {
		if o, err := other.target(); err == nil && o.Name == to.Name && o.Port < to.Port {
			v.fault(field+".host", "%s has two ports, and the tool speaks to one", to.Name)
		}
	}
	if slices.Contains(allowed, Allowed{Name: to.Name, Port: InjectPort}) {
		v.fault(field+".host", "network.allow has %s:%d, which is where the tool speaks to have its secret injected", to.Name, InjectPort)
	}
	return fmt.Sprintf("inject %s:%d %s", to.Name, to.Port, header)
}
