package local_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/local"
	"github.com/toolfleet/toolfleet/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(cfg local.Config) func(t *testing.T) sandbox.Runtime {
	return func(t *testing.T) sandbox.Runtime {
		cfg.Agent, cfg.Dir, cfg.Owner = sandboxtest.BuildAgent(t), sandboxtest.PublicDir(t), "tester"
		rt, err := local.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return rt
	}
}

func TestSuite(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Config{Open: open(local.Config{}), Probe: sandboxtest.BuildProbe(t)})
}

func TestSuiteWithoutPIDNamespace(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Config{Open: open(local.Config{NoPIDNamespace: true}), Probe: sandboxtest.BuildProbe(t)})
}
