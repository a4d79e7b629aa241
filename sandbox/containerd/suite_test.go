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

// TestSuite is what every runtime must do, with the real agent: each one that
// this machine can use, under its name. The others are named aloud.
func TestSuite(t *testing.T) {
	agent, probe := sandboxtest.BuildAgent(t), sandboxtest.BuildProbe(t)
	rt := openWith(t, "suite", agent)
	importProbe(t, rt, probe)
	for _, h := range rt.Handlers(t.Context()) {
		if h.Problem != "" {
			t.Logf("absent: runtime %s: %s", h.Name, h.Problem) // toolchain/test.sh prints it
			continue
		}
		for _, isolation := range []string{"container", "cell"} {
			t.Run(h.Name+"/"+isolation, func(t *testing.T) {
				sandboxtest.Run(t, sandboxtest.Config{
					Open:  func(*testing.T) sandbox.Runtime { return rt },
					Probe: "/probe",
					Spec: sandbox.Spec{
						Image: probeImage, Runtime: h.Name, Isolation: isolation,
						Limits: sandbox.Limits{CPU: 1, Memory: 128 << 20, Disk: 32 << 20, Pids: 64},
					},
					Limits:    true,
					Isolation: true,
					OwnKernel: ownKernel[h.Name],
					Overhead:  overhead[h.Name],
				})
				noLeftovers(t, rt)
			})
		}
	}
}

// ownKernel and overhead tell of the runtimes that are no plain processes of the
// host.
var (
	ownKernel = map[string]string{"runsc": "gVisor's kernel is a process of the host, and the tool's processes are that one's"}
	overhead  = map[string]int64{"runsc": 64 << 20}
)

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

// TestUserLimits: the tool cannot take what the kernel counts for the host's
// root, such as inotify instances.
func TestUserLimits(t *testing.T) {
	rt := openWith(t, "w1", sandboxtest.BuildAgent(t))
	importTestImage(t, rt)
	sb, err := sandbox.Open(t.Context(), rt, sandboxtest.NewID(), sandbox.Spec{Image: testImage})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sb.Close(endCtx(t)); err != nil {
			t.Error(err)
		}
	}()
	exit, err := sb.Run(t.Context(), sandbox.Process{Argv: []string{
		"/bin/sh", "-c", "cd /proc/sys/user; cat max_inotify_instances max_user_namespaces; echo 99 > max_inotify_instances || echo refused",
	}}, sandbox.Sink{})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(exit.Stdout); got != "16\n0\nrefused\n" {
		t.Errorf("the tool said %q, %q", got, exit.Stderr)
	}
}
