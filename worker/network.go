package worker

import (
	"context"
	"net"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/worker/egress"
	"github.com/toolfleet/toolfleet/worker/inject"
)

// network is what a call may reach. The zero value is that of a call that reaches
// nothing, which is nearly all of them.
type network struct {
	call    *egress.Call
	proxies map[string]*inject.Proxy
}

// network begins what the tool's spec allows.
func (a *attempt) network() network {
	spec := a.job.Spec
	if spec.Network.None() {
		return network{}
	}
	allowed, err := spec.Network.Allowed()
	if err != nil {
		// The dispatcher has checked it. What cannot be read allows nothing.
		a.logger.Error("network cannot be read; the tool reaches nothing", "error", err)
	}
	policy := a.Egress
	if policy == nil {
		policy = &egress.Policy{}
	}
	var n network
	n.proxies = a.proxies(func(ctx context.Context, network, address string) (net.Conn, error) {
		return n.call.Dial(ctx, network, address)
	})
	opts := egress.Options{Allowed: allowed, Logger: a.logger, Metrics: a.Metrics}
	for name, p := range n.proxies {
		opts.Services = append(opts.Services, egress.Service{Name: name, Port: catalog.InjectPort, Serve: p.Serve})
	}
	n.call = policy.Call(opts)
	return n
}

func (n network) listeners() (l sandbox.Listeners) {
	if n.call != nil {
		l = n.call.Listeners()
	}
	return l
}

func (n network) env() []string {
	if n.call == nil {
		return nil
	}
	return n.call.Env()
}

// report tells the result where the tool went.
func (n network) report(e *call.Execution) {
	if n.call != nil {
		n.close() // a connection is counted when it is over
		e.Egress, e.EgressMore = n.call.Report()
	}
}

// close ends what is kept for another request. It may be called again.
func (n network) close() {
	if n.call == nil {
		return
	}
	n.closeProxies()
	n.call.Close()
}

func (n network) closeProxies() {
	for _, p := range n.proxies {
		p.Close()
	}
}
