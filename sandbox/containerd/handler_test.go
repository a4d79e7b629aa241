package containerd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/sandboxtest"
)

// named opens a runtime with handlers beside the usual ones.
func named(t *testing.T, agent string, runtimes map[string]string) *containerd.Runtime {
	t.Helper()
	rt, err := containerd.New(containerd.Config{
		Address: daemon.Address(), Owner: "handlers", AgentPath: agent, BinDir: binDir, StateDir: t.TempDir(), Runtimes: runtimes,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// A handler is what it can be seen to do, whatever its name or its version: a
// program that runs a sandbox, one that does not, one that is not there, and a
// shim that containerd does not have.
func TestHandlers(t *testing.T) {
	dir := t.TempDir()
	works, fails := filepath.Join(dir, "works"), filepath.Join(dir, "it's broken")
	for path, text := range map[string]string{
		works: fmt.Sprintf("#!/bin/sh\nexec '%s/runc' \"$@\"\n", binDir),
		fails: "#!/bin/sh\necho first >&2\necho 'no such kernel' >&2\nexit 3\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	rt := named(t, sandboxtest.BuildAgent(t), map[string]string{
		"works": works, "fails": fails, "gone": filepath.Join(dir, "gone"), "kata": "io.containerd.no-such-shim.v2",
	})
	importTestImage(t, rt)
	found := rt.Handlers(t.Context())
	for name, problem := range map[string]string{"runc": "", "works": "", "fails": "no such kernel", "gone": "no such file", "kata": "no-such-shim"} {
		n := slices.IndexFunc(found, func(h containerd.Handler) bool { return h.Name == name })
		if n < 0 {
			t.Errorf("%s is not told of", name)
		} else if got := found[n].Problem; (got == "") != (problem == "") || !strings.Contains(got, problem) {
			t.Errorf("%s: problem %q, want %q", name, got, problem)
		}
	}

	sb, err := sandbox.Open(t.Context(), rt, sandboxtest.NewID(), sandbox.Spec{Image: testImage, Runtime: "works"})
	if err != nil {
		t.Fatal(err)
	}
	if sb.Runtime() != "works" {
		t.Errorf("the sandbox says that it runs under %q", sb.Runtime())
	}
	if err := sb.Close(endCtx(t)); err != nil {
		t.Error(err)
	}
	for name, says := range map[string]string{"fails": "no such kernel", "unheard-of": "no runtime \"unheard-of\""} {
		_, err := sandbox.Open(t.Context(), rt, sandboxtest.NewID(), sandbox.Spec{Image: testImage, Runtime: name})
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "the class of") {
			t.Errorf("%s: got %v, want %q and what to do", name, err, says)
		}
	}
	noLeftovers(t, rt)
}

// A sandbox of gVisor is removed to the last file of runsc's state.
func TestRunscState(t *testing.T) {
	rt := openWith(t, "handlers", sandboxtest.BuildAgent(t))
	importTestImage(t, rt)
	runsc, err := rt.Start(t.Context(), sandboxtest.NewID(), sandbox.Spec{Image: testImage, Runtime: "runsc"})
	if err != nil {
		t.Fatal(err)
	}
	states := func() []string {
		found, err := filepath.Glob("/run/toolfleet/r*/runc/*/*" + runsc.ID() + "*")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if len(states()) == 0 {
		t.Fatal("runsc keeps no state where it is looked for")
	}
	if err := runsc.Kill(endCtx(t)); err != nil {
		t.Fatal(err)
	}
	for _, p := range states() {
		t.Log("left by the dead: ", filepath.Base(p))
	}
	if err := runsc.Close(endCtx(t)); err != nil {
		t.Error(err)
	}
	if left := states(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	noLeftovers(t, rt)
}

func TestBadHandlers(t *testing.T) {
	for name, what := range map[string]string{"../up": "/bin/true", "relative": "bin/runc", "flags": "runc --debug", "empty": ""} {
		_, err := containerd.New(containerd.Config{
			Address: daemon.Address(), Owner: "handlers", AgentPath: shell, Runtimes: map[string]string{name: what},
		})
		if err == nil {
			t.Errorf("%s=%s was taken", name, what)
		}
	}
}
