package aguidoor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/metrics"
)

// label is the value of the door label of metrics.
const label = "agui"

// Tools are the fleet's tools. *catalog.Catalog is one.
type Tools interface {
	// List returns the tools that a tenant may use.
	List(tenant string) []*catalog.Spec
	// Resolve returns the tool of that name, when the tenant may use it.
	Resolve(tenant, name string) (*catalog.Spec, bool)
}

// Config of a [Door].
type Config struct {
	Dispatcher *dispatch.Dispatcher
	Tools      Tools
	// Agents are those that the gateway leads to; see [ReadAgents].
	Agents []Agent
	// MaxCalls bounds the calls of one run; 256 by default.
	MaxCalls int
	// MaxRounds bounds how often the gateway runs its agent in one run; 16 by
	// default.
	MaxRounds int
	// KeepAlive is the pause after which a silent stream sends a comment; 15 s
	// by default.
	KeepAlive time.Duration
	// Metrics may be nil.
	Metrics *metrics.Metrics
	Logger  *slog.Logger
}

// Door is the AG-UI door. It is an httpapi.Door, and safe for concurrent use.
type Door struct {
	config Config
	agents map[string]*Agent
}

// New checks the configuration.
func New(c Config) (*Door, error) {
	c.MaxCalls = cmp.Or(c.MaxCalls, 256)
	c.MaxRounds = cmp.Or(c.MaxRounds, 16)
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second)
	var errs []error
	if c.Dispatcher == nil || c.Tools == nil || c.Logger == nil {
		errs = append(errs, errors.New("a dispatcher, tools and a logger are required"))
	}
	if c.MaxCalls < 0 || c.MaxRounds < 0 || c.KeepAlive < 0 {
		errs = append(errs, errors.New("times and bounds must not be negative"))
	}
	d := &Door{config: c, agents: map[string]*Agent{}}
	for _, a := range c.Agents {
		a.setDefaults()
		if err := a.validate(); err != nil {
			errs = append(errs, fmt.Errorf("agent %q: %w", a.Name, err))
		}
		if d.agents[a.Name] != nil {
			errs = append(errs, fmt.Errorf("agent %q is declared twice", a.Name))
		}
		d.agents[a.Name] = &a
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("aguidoor: %w", errors.Join(errs...))
	}
	return d, nil
}

// Routes adds the door's routes.
func (d *Door) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /agui/run", d.run)
	mux.HandleFunc("POST /agui/agents/{name}/run", d.gateway)
	mux.HandleFunc("DELETE /agui/threads/{threadId}/runs/{runId}", d.cancel)
}
