package catalog

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// maxAllowed bounds the entries of network.allow: the sandbox of a call has a
// listener for each name of them.
const maxAllowed = 64

// Allowed is one entry of network.allow: what a tool may connect to. One of Name,
// Suffix and Prefix is set.
type Allowed struct {
	// Name is an exact name, normalised: lower case, ASCII, no dot at its end.
	Name string
	// Suffix is ".example.org" for *.example.org, which is every name below
	// example.org and not itself.
	Suffix string
	// Prefix is a network, or one address.
	Prefix netip.Prefix
	Port   uint16
}

// ParseAllowed reads "api.example.com:443", "*.example.org:443",
// "203.0.113.0/24:5432" or "203.0.113.7:443"; addresses of IPv6 stand in
// brackets. A port is required. Its errors are sentences for the tool's author.
func ParseAllowed(s string) (Allowed, error) {
	host, digits, ok := cutLast(s, ":")
	port, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || port == 0 {
		return Allowed{}, fmt.Errorf("expected a port of 1 to 65535 at its end, as in api.example.com:443, got %q", cut(s))
	}
	a := Allowed{Port: uint16(port)}
	bare := host
	if inner, found := strings.CutPrefix(host, "["); found {
		if bare, found = strings.CutSuffix(inner, "]"); !found || !strings.Contains(bare, ":") {
			return Allowed{}, fmt.Errorf("expected an address of IPv6 in the brackets of %q", cut(s))
		}
	}
	switch prefix, err := netip.ParsePrefix(bare); {
	case err == nil && prefix != prefix.Masked():
		return Allowed{}, fmt.Errorf("%q has bits beyond its length; write %s", cut(s), prefix.Masked())
	case err == nil:
		a.Prefix = prefix
	default:
		if addr, err := netip.ParseAddr(bare); err == nil && addr.Zone() == "" {
			a.Prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
	}
	if a.Prefix.IsValid() {
		if a.Prefix.Addr().Is4In6() || a.Prefix.Addr().Is6() != (bare != host) {
			return Allowed{}, fmt.Errorf("%q: write an address of IPv4 plainly, and one of IPv6 in brackets", cut(s))
		}
		return a, nil
	}
	name, below := strings.CutPrefix(host, "*.")
	name, err = NormalName(name)
	if err != nil {
		return Allowed{}, fmt.Errorf("expected a name, *.name, an address or a network before the port, got %q: %w", cut(s), err)
	}
	switch {
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		return Allowed{}, fmt.Errorf("%q is the sandbox itself, which a tool may always reach", cut(s))
	case !below:
		a.Name = name
	case !strings.Contains(name, "."):
		return Allowed{}, fmt.Errorf("%q is every name of a whole top-level domain", cut(s))
	default:
		a.Suffix = "." + name
	}
	return a, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

var (
	// nameForm is a name of hosts in the letters of IDNA; some have underscores.
	nameForm = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)
	// numberForm is how some programs write an address: what ends in such a label
	// is taken for one by them, and is no name.
	numberForm = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)
)

// NormalName is the one form of a host's name: lower case, IDNA's ASCII form, no
// dot at its end. Addresses are no names, however they are written: 127.1,
// 2130706433 and 0x7f.1 are refused.
func NormalName(s string) (string, error) {
	name := strings.TrimSuffix(s, ".")
	ascii, err := idna.Lookup.ToASCII(name)
	if err != nil {
		ascii = strings.ToLower(name) // underscores, which IDNA does not have
	}
	last := ascii[strings.LastIndex(ascii, ".")+1:]
	if len(ascii) > 253 || !nameForm.MatchString(ascii) || numberForm.MatchString(last) {
		return "", fmt.Errorf("%q is no name of a host", cut(s))
	}
	return ascii, nil
}

// Allowed reads the entries of a valid spec.
func (n Network) Allowed() ([]Allowed, error) {
	all := make([]Allowed, 0, len(n.Allow))
	for _, s := range n.Allow {
		a, err := ParseAllowed(s)
		if err != nil {
			return nil, fmt.Errorf("catalog: network: %w", err)
		}
		all = append(all, a)
	}
	return all, nil
}

// network checks what the tool may reach.
func (v *validator) network(s *Spec) {
	if s.Network.None() {
		return
	}
	if n := len(s.Network.Allow); n == 0 || n > maxAllowed {
		v.fault("network.allow", "has %d entries, and 1 to %d are allowed; write network: none for a tool that reaches nothing", n, maxAllowed)
	}
	seen := map[Allowed]bool{}
	for i, entry := range s.Network.Allow {
		a, err := ParseAllowed(entry)
		switch {
		case err != nil:
			v.fault(fmt.Sprintf("network.allow[%d]", i), "%v", err)
		case seen[a]:
			v.fault(fmt.Sprintf("network.allow[%d]", i), "%q stands there twice", cut(entry))
		}
		seen[a] = true
	}
}
