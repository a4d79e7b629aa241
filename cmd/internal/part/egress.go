package part

import (
	"fmt"
	"net/netip"

	"github.com/toolfleet/toolfleet/worker/egress"
)

// EgressConfig says what tools with a network may reach from this worker. The
// tags are kong's.
type EgressConfig struct {
	EgressAllowPrivate []string `help:"A network that is not the internet's and that tools may reach all the same, if their files allow it: private addresses, this machine's own. A cloud's metadata address is opened only by itself. May be repeated." placeholder:"CIDR" env:"TOOLFLEET_EGRESS_ALLOW_PRIVATE"`
	EgressConnections  int      `help:"Connections that a call may have at once." default:"64" env:"TOOLFLEET_EGRESS_CONNECTIONS"`
	EgressTotal        int      `help:"Connections that a call may make." default:"1024" env:"TOOLFLEET_EGRESS_TOTAL"`
	EgressMiB          int64    `name:"egress-mib" help:"MiB that a call may send and receive." default:"1024" env:"TOOLFLEET_EGRESS_MIB"`
	EgressRate         int64    `help:"MiB per second that a call may send and receive." default:"64" env:"TOOLFLEET_EGRESS_RATE"`
}

// Policy reads the flags.
func (c EgressConfig) Policy() (*egress.Policy, error) {
	if min(int64(c.EgressConnections), int64(c.EgressTotal), c.EgressMiB, c.EgressRate) < 0 || max(c.EgressMiB, c.EgressRate) > mostMiB {
		return nil, fmt.Errorf("the egress limits are between 0, which is the default, and %d MiB", mostMiB)
	}
	p := &egress.Policy{Limits: egress.Limits{
		AtOnce: c.EgressConnections, Total: c.EgressTotal, Bytes: c.EgressMiB << 20, Rate: c.EgressRate << 20,
	}}
	for _, s := range c.EgressAllowPrivate {
		prefix, err := netip.ParsePrefix(s)
		if err != nil || prefix != prefix.Masked() {
			return nil, fmt.Errorf("egress-allow-private: %q is no network such as 10.20.0.0/16", s)
		}
		p.AllowPrivate = append(p.AllowPrivate, prefix)
	}
	return p, nil
}
