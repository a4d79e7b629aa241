package containerd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// TestUsersContainerd: a containerd that the user runs, with its default
// configuration, will do as well.
func TestUsersContainerd(t *testing.T) {
	dir := newState(t)
	if err := os.Chmod(dir, 0o711); err != nil { // as /run/containerd is, for user namespaces
		t.Fatal(err)
	}
	socket, config := filepath.Join(dir, "c.sock"), filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\n[grpc]\n  address = %q\n", dir+"/root", dir+"/state", socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(endCtx(t), filepath.Join(binDir, "containerd"), "--config", config)
	cmd.Env = []string{"PATH=" + binDir + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
	})
	rt, err := containerd.New(containerd.Config{Address: socket, Owner: "w1", AgentPath: shell})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	awaitReady(t, rt)
	importTestImage(t, rt)
	inst := start(t, rt, "guest", sandbox.Limits{})
	if got := ask(t, inst, "stat -c %u /bin/busybox"); got != "0" {
		t.Errorf("said %q", got)
	}
	closeInstance(t, inst)
	noLeftovers(t, rt)
}
