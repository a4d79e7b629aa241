package egress_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/worker/egress"
)

// What is over a limit, or not allowed, is refused at once and told in the result.
func TestLimitsAndDenials(t *testing.T) {
	plain, held := serve(t, false, "plain"), hold(t)
	address := "http://api.test:" + plain + "/"
	rt := openRuntime(t)
	spec := sandbox.Spec{Image: probeImage(t, rt), Pull: "never", Runtime: "runc", Isolation: "container"}
	for _, c := range []struct {
		name   string
		policy egress.Policy
		argv   []string
		says   string
		reason string
	}{
		{"bytes", egress.Policy{Limits: egress.Limits{Bytes: 100}}, []string{"get", address, address}, "failed: ", "limit"},
		{"total", egress.Policy{Limits: egress.Limits{Total: 3}}, []string{"crowd", "api.test:" + held, "4"}, "failed: ", "limit"},
		{"at once", egress.Policy{Limits: egress.Limits{AtOnce: 3}}, []string{"crowd", "api.test:" + held, "4"}, "failed: ", "limit"},
		{"another name", egress.Policy{}, []string{"get", "http://other.test:" + plain + "/"}, "failed: ", "not_allowed"},
		{"another port", egress.Policy{}, []string{"get", "http://api.test:1/"}, "failed: connection refused", ""},
		{"nobody there", egress.Policy{}, []string{"exchange", "tcp", "api.test:9", "hello"}, "failed: ", "failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			exit, kinds := run(t, rt, spec, &c.policy, []string{"api.test:" + plain, "api.test:" + held, "api.test:9"}, append([]string{"/probe"}, c.argv...)...)
			if !strings.Contains(string(exit.Stdout), c.says) {
				t.Errorf("the tool said %q, %q (%s %s %s)", exit.Stdout, exit.Stderr, exit.Cause, exit.Signal, exit.Detail)
			}
			reasons := ""
			for _, k := range kinds {
				reasons += k.Reason + " "
			}
			if !strings.Contains(reasons, c.reason) {
				t.Errorf("the result tells of %+v", kinds)
			}
		})
	}
}

// hold starts a server that takes connections, says nothing and keeps them, and
// returns its port.
func hold(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", here+":0")
	if err != nil {
		t.Fatal(err)
	}
	var holding sync.WaitGroup
	holding.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			holding.Go(func() {
				defer c.Close()
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		holding.Wait()
	})
	return l.Addr().String()[len(here)+1:]
}
