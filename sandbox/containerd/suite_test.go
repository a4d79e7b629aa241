package containerd_test

import (
	"bytes"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/image"
	"github.com/toolfleet/toolfleet/sandbox/sandboxtest"
)

const probeImage = "local/probe:1"

// TestSuite is what every runtime must do, with the real agent.
func TestSuite(t *testing.T) {
	agent, probe := sandboxtest.BuildAgent(t), sandboxtest.BuildProbe(t)
	var rt *containerd.Runtime
	sandboxtest.Run(t, sandboxtest.Config{
		Open: func(t *testing.T) sandbox.Runtime {
			rt = openWith(t, "suite", agent)
			importProbe(t, rt, probe)
			return rt
		},
		Probe:     "/probe",
		Spec:      sandbox.Spec{Image: probeImage, Limits: sandbox.Limits{CPU: 1, Memory: 128 << 20, Disk: 32 << 20, Pids: 64}},
		Limits:    true,
		Isolation: true,
	})
	noLeftovers(t, rt)
}

func importProbe(t *testing.T, rt *containerd.Runtime, probe string) {
	t.Helper()
	img, err := image.Recipe{Add: []string{probe + ":/probe"}}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := image.WriteArchive(&archive, probeImage, img); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Import(t.Context(), &archive); err != nil {
		t.Fatal(err)
	}
}
