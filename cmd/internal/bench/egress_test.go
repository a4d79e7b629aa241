package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox/sandboxtest"
)

// The figures of a tool's network come from what was really carried, in a sandbox
// and beside one.
func TestEgress(t *testing.T) {
	bin, err := filepath.Abs("../../../.toolchain/bin")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/var/tmp", "toolfleet-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	fetch := filepath.Join(sandboxtest.PublicDir(t), "fetch")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", fetch, "./fetch")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	network, err := openEgress(t.Context(), Config{BinDir: bin, Agent: sandboxtest.BuildAgent(t), Fetch: fetch, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := network.close(); err != nil {
			t.Error(err)
		}
	}()
	out := map[string][]float64{}
	if err := (&bench{network: network}).egress(t.Context(), 1, out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"egress_throughput", "egress_bare_throughput"} {
		if len(out[name]) != 1 || out[name][0] <= 0 {
			t.Errorf("%s is %v", name, out[name])
		}
	}
	if len(out["egress_added_latency"]) != 1 {
		t.Errorf("the latency is %v", out)
	}
	t.Logf("%v", out)
}

// What the program did not print is no figure.
func TestParseFetched(t *testing.T) {
	for _, text := range []string{"", "1.5\n", "a b\n"} {
		if f, err := parseFetched([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, f)
		}
	}
	f, err := parseFetched([]byte("2 0.25\n"))
	if err != nil || f.throughput != 128 || f.latency != 0.25 {
		t.Errorf("%+v %v", f, err)
	}
}
