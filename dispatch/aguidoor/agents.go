package aguidoor

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/toolfleet/toolfleet/call"
)

// Agent is an AG-UI agent that the gateway leads to.
type Agent struct {
	// Name is its name in the gateway's path: [A-Za-z0-9_-]{1,64}.
	Name string `yaml:"name"`
	// URL is where it takes POST requests. Nothing else is ever asked: not what
	// the agent redirects to, and not what a request names.
	URL string `yaml:"url"`
	// HeadersFile holds "Name: value" a line, sent with each request, such as
	// the agent's credentials; nothing of the client's request is. A relative
	// name is relative to the file that names it.
	HeadersFile string `yaml:"headersFile"`
	// Tenants may use it; none means all.
	Tenants []string `yaml:"tenants"`
	// Silence is how long it may send nothing; 2 min by default. A comment is
	// something.
	Silence time.Duration `yaml:"silence"`
	// Timeout bounds one round; 1 h by default.
	Timeout time.Duration `yaml:"timeout"`

	// Header is what HeadersFile holds.
	Header http.Header `yaml:"-"`
}

func (a *Agent) setDefaults() {
	a.Silence = cmp.Or(a.Silence, 2*time.Minute)
	a.Timeout = cmp.Or(a.Timeout, time.Hour)
}

// serves reports whether a tenant may use the agent.
func (a *Agent) serves(tenant string) bool {
	return len(a.Tenants) == 0 || slices.Contains(a.Tenants, tenant)
}

var (
	agentName  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
)

// validate says everything that is wrong with the agent.
func (a *Agent) validate() error {
	var errs []error
	if !agentName.MatchString(a.Name) {
		errs = append(errs, errors.New("the name must match [A-Za-z0-9_-]{1,64}"))
	}
	u, err := url.Parse(a.URL)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Fragment != "":
		errs = append(errs, errors.New("the url is not http(s)://host[:port]/path"))
	case u.User != nil:
		errs = append(errs, errors.New("the url holds credentials; they belong into headersFile"))
	}
	if a.Silence < 0 || a.Timeout < 0 {
		errs = append(errs, errors.New("silence and timeout must not be negative"))
	}
	for _, t := range a.Tenants {
		if !call.ValidTenant(t) {
			errs = append(errs, fmt.Errorf("%q is not a tenant", t))
		}
	}
	return errors.Join(errs...)
}

// ReadAgents reads a file of agents:
//
//	agents:
//	  - name: planner
//	    url: https://planner.example/agui
//	    headersFile: planner.headers
//	    tenants: [acme]
//	    silence: 2m
//	    timeout: 1h
//
// An unknown field is an error that names its line.
func ReadAgents(name string) ([]Agent, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("aguidoor: agents: %w", err)
	}
	defer f.Close()
	var file struct {
		Agents []Agent `yaml:"agents"`
	}
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("aguidoor: agents: %s: %w", name, err)
	}
	for i := range file.Agents {
		a := &file.Agents[i]
		if a.HeadersFile == "" {
			continue
		}
		if !filepath.IsAbs(a.HeadersFile) {
			a.HeadersFile = filepath.Join(filepath.Dir(name), a.HeadersFile)
		}
		if a.Header, err = readHeaders(a.HeadersFile); err != nil {
			return nil, fmt.Errorf("aguidoor: agent %q: %w", a.Name, err)
		}
	}
	return file.Agents, nil
}

// ours are headers that the gateway sets itself.
var ours = []string{"Accept", "Connection", "Content-Length", "Content-Type", "Host", "Transfer-Encoding"}

// readHeaders reads "Name: value" lines. Errors name the line and never what
// stands in it: it is somebody's secret.
func readHeaders(name string) (http.Header, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	defer f.Close()
	header := http.Header{}
	lines := bufio.NewScanner(io.LimitReader(f, 1<<20))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		key = http.CanonicalHeaderKey(key)
		if !ok || !headerName.MatchString(key) || slices.Contains(ours, key) {
			return nil, fmt.Errorf("headers: %s: line %d is not \"Name: value\" of a header that may be set", name, n)
		}
		header.Add(key, strings.TrimSpace(value))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("headers: %s: %w", name, err)
	}
	return header, nil
}
