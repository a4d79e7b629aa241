package worker

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/worker/inject"
	"github.com/toolfleet/toolfleet/worker/secret"
)

// injection is a header with a secret for a host.
type injection struct {
	to     catalog.Allowed
	header inject.Header
}

// inject notes a secret that stays on this side.
func (s *secrets) inject(want catalog.Secret, value string) error {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return &secret.Error{Name: want.Name, Err: errors.New("its value has a control character, such as a line break, and cannot be in a header")}
	}
	to, err := want.Inject.Target()
	if err != nil {
		return &secret.Error{Name: want.Name, Err: err}
	}
	s.injections = append(s.injections, injection{to, inject.Header{Name: want.Inject.Header, Value: want.Inject.Value(value)}})
	return nil
}

// proxies are what the tool speaks to in place of the hosts that get a secret, by
// name.
func (a *attempt) proxies(dial func(ctx context.Context, network, address string) (net.Conn, error)) map[string]*inject.Proxy {
	configs := map[string]inject.Config{}
	for _, i := range a.secrets.injections {
		c := configs[i.to.Name]
		c.Host, c.Port = i.to.Name, strconv.Itoa(int(i.to.Port))
		c.Dial, c.Roots, c.Redact = dial, a.Roots, a.secrets.redact
		c.Headers = append(c.Headers, i.header)
		configs[i.to.Name] = c
	}
	proxies := make(map[string]*inject.Proxy, len(configs))
	for name, c := range configs {
		proxies[name] = inject.New(c)
	}
	return proxies
}
