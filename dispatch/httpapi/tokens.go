package httpapi

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/toolfleet/toolfleet/call"
)

// minToken is the shortest token taken, in bytes: what is shorter can be
// guessed over the network.
const minToken = 16

// Tokens knows which tenant a bearer token stands for. Tokens are kept as
// digests only.
type Tokens struct{ list []tokenEntry }

type tokenEntry struct {
	tenant   string
	operator bool
	digest   [sha256.Size]byte
}

// operator is the third word of a line whose token is an operator's.
const operator = "operator"

// ReadTokenFile reads tokens from a file; see [ReadTokens].
func ReadTokenFile(name string) (*Tokens, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("httpapi: token file: %w", err)
	}
	defer f.Close()
	t, err := ReadTokens(f)
	if err != nil {
		return nil, fmt.Errorf("httpapi: token file %s: %w", name, err)
	}
	return t, nil
}

// ReadTokens reads one "tenant token" a line. A third word, "operator", lets
// the token see the fleet itself as well, such as its workers. Empty lines and lines that begin
// with # are left out. A tenant may have several tokens, so that one can be
// changed without a gap; a token belongs to one tenant. Errors name the line
// and never the token.
func ReadTokens(r io.Reader) (*Tokens, error) {
	var t Tokens
	seen := map[[sha256.Size]byte]bool{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		switch {
		case len(f) != 2 && (len(f) != 3 || f[2] != operator):
			return nil, fmt.Errorf("line %d is not \"tenant token\" or \"tenant token operator\"", n)
		case !call.ValidTenant(f[0]):
			return nil, fmt.Errorf("line %d: the tenant must match [a-z0-9-]{1,63}", n)
		case len(f[1]) < minToken:
			return nil, fmt.Errorf("line %d: the token is shorter than %d characters", n, minToken)
		}
		d := sha256.Sum256([]byte(f[1]))
		if seen[d] {
			return nil, fmt.Errorf("line %d: the token stands in an earlier line", n)
		}
		seen[d] = true
		t.list = append(t.list, tokenEntry{f[0], len(f) == 3, d})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(t.list) == 0 {
		return nil, errors.New("it holds no token")
	}
	return &t, nil
}

// Tenant returns the tenant of a token.
func (t *Tokens) Tenant(token string) (string, bool) {
	e, ok := t.find(token)
	return e.tenant, ok
}

// Operator reports whether a token is an operator's.
func (t *Tokens) Operator(token string) bool {
	e, _ := t.find(token)
	return e.operator
}

// find compares every entry, by digest and in constant time, so that the time
// taken tells nothing about any token.
func (t *Tokens) find(token string) (tokenEntry, bool) {
	d := sha256.Sum256([]byte(token))
	found := -1
	for i := range t.list {
		if subtle.ConstantTimeCompare(d[:], t.list[i].digest[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return tokenEntry{}, false
	}
	return t.list[found], true
}
