package containerd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// newState is a state directory on a disk: the directory of a test may be on
// something else.
func newState(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "toolfleet-daemon-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func startDaemon(t *testing.T, state string) *containerd.Daemon {
	t.Helper()
	d, err := containerd.StartDaemon(t.Context(), containerd.DaemonConfig{BinDir: binDir, StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopDaemon(t, d) })
	return d
}

func stopDaemon(t *testing.T, d *containerd.Daemon) {
	t.Helper()
	if err := d.Stop(endCtx(t)); err != nil {
		t.Error(err)
	}
}

// pidOf reads whom the daemon of a state directory recorded.
func pidOf(t *testing.T, state string) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(state, "containerd", "running.json"))
	if err != nil {
		t.Fatal(err)
	}
	var id struct{ PID int }
	if err := json.Unmarshal(raw, &id); err != nil {
		t.Fatal(err)
	}
	return id.PID
}

// fleetEnv makes the test binary a fleet that starts a daemon on the given
// state, says so and waits to be killed.
const fleetEnv = "TOOLFLEET_TEST_FLEET"

func fleet(state string) error {
	if _, err := containerd.StartDaemon(context.Background(), containerd.DaemonConfig{BinDir: binDir, StateDir: state}); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "ready")
	select {}
}

// killFleet starts a fleet on state in a process of its own and kills it.
func killFleet(t *testing.T, state string) {
	t.Helper()
	runUntilReady(t, fleetEnv+"="+state)()
}

// alive tells whether pid runs. A dead process that nobody has reaped yet has
// no program any more.
func alive(pid int) bool {
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil
}

func TestOneFleetPerState(t *testing.T) {
	state := newState(t)
	d := startDaemon(t, state)
	_, err := containerd.StartDaemon(t.Context(), containerd.DaemonConfig{BinDir: binDir, StateDir: state})
	if err == nil || !strings.Contains(err.Error(), "in use by another fleet") {
		t.Errorf("a second fleet on one state: %v", err)
	}
	stopDaemon(t, d)
	stopDaemon(t, d) // again
	if _, err := os.Stat(filepath.Dir(d.Address())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left in /run: %v", err)
	}
	stopDaemon(t, startDaemon(t, state)) // and once more
}

func TestProgramsAreMissing(t *testing.T) {
	_, err := containerd.StartDaemon(t.Context(), containerd.DaemonConfig{BinDir: t.TempDir(), StateDir: newState(t)})
	if err == nil || !strings.Contains(err.Error(), "run make setup") {
		t.Errorf("start without programs: %v", err)
	}
}

// TestAdoption: the fleet is killed, its containerd stays and is taken over;
// one of another configuration is ended.
func TestAdoption(t *testing.T) {
	state := newState(t)
	killFleet(t, state)
	orphan := pidOf(t, state)
	if !alive(orphan) {
		t.Fatal("containerd died with its fleet")
	}
	d := startDaemon(t, state)
	if got := pidOf(t, state); got != orphan {
		t.Errorf("process %d, want the adopted %d", got, orphan)
	}
	stopDaemon(t, d)
	if alive(orphan) {
		t.Error("the adopted containerd outlived Stop")
	}

	killFleet(t, state)
	orphan = pidOf(t, state)
	// Another program in another place is another containerd.
	other := filepath.Join(newState(t), "bin")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		if err := os.Symlink(filepath.Join(binDir, name), filepath.Join(other, name)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := containerd.StartDaemon(t.Context(), containerd.DaemonConfig{BinDir: other, StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	defer stopDaemon(t, d)
	if got := pidOf(t, state); got == orphan || alive(orphan) {
		t.Errorf("process %d, and the old %d lives: %v", got, orphan, alive(orphan))
	}
}

// TestForgedRecord: a record that names a process which is not our containerd
// must not kill it.
func TestForgedRecord(t *testing.T) {
	state := newState(t)
	stopDaemon(t, startDaemon(t, state))
	record := filepath.Join(state, "containerd", "running.json")
	raw, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var id map[string]any
	if err := json.Unmarshal(raw, &id); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{os.Getpid(), 1, 0, -1} {
		id["pid"] = pid
		forged, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(record, forged, 0o600); err != nil {
			t.Fatal(err)
		}
		stopDaemon(t, startDaemon(t, state)) // and we are still here
	}
	if err := os.WriteFile(record, []byte("{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	startDaemon(t, state)
}

// TestStaleState: after a restart of the machine without a clean stop the
// databases are not trusted.
func TestStaleState(t *testing.T) {
	state := newState(t)
	stopDaemon(t, startDaemon(t, state))
	record := filepath.Join(state, "containerd", "running.json")
	raw, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Replace(raw, bytes.TrimSpace(boot), []byte("another-boot"), 1)
	witness := filepath.Join(state, "containerd", "root", "witness")

	for _, c := range []struct{ clean, kept bool }{{true, true}, {false, false}} {
		if err := os.WriteFile(record, before, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(witness, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if !c.clean {
			if err := os.Remove(filepath.Join(state, "containerd", "clean")); err != nil {
				t.Fatal(err)
			}
		}
		stopDaemon(t, startDaemon(t, state))
		if _, err := os.Stat(witness); (err == nil) != c.kept {
			t.Errorf("clean %v: %v", c.clean, err)
		}
	}
}

// TestContainerdDies: it is started again, sandboxes live on and can be closed.
func TestContainerdDies(t *testing.T) {
	state := newState(t)
	d := startDaemon(t, state)
	rt, err := containerd.New(containerd.Config{Address: d.Address(), Owner: "w1", AgentPath: shell, BinDir: binDir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	importTestImage(t, rt)
	inst := start(t, rt, "survivor", sandbox.Limits{})
	first := pidOf(t, state)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, inst, "echo alive"); got != "alive" {
		t.Errorf("said %q", got)
	}
	awaitReady(t, rt)
	if pidOf(t, state) == first {
		t.Error("containerd was not started again")
	}
	if got := ask(t, inst, "echo still"); got != "still" {
		t.Errorf("said %q", got)
	}
	closeInstance(t, inst)
	noLeftovers(t, rt)
}

func TestUnavailable(t *testing.T) {
	d := startDaemon(t, newState(t))
	rt, err := containerd.New(containerd.Config{Address: d.Address(), Owner: "w1", AgentPath: shell, BinDir: binDir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rt.Close() }()
	importTestImage(t, rt)
	stopDaemon(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := rt.Ready(ctx); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("ready: %v", err)
	}
	if _, err := rt.Start(ctx, "x", sandbox.Spec{Image: testImage}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("start: %v", err)
	}
	if _, err := rt.List(ctx); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("list: %v", err)
	}
}

func TestDaemonLogs(t *testing.T) {
	var log bytes.Buffer
	d, err := containerd.StartDaemon(t.Context(), containerd.DaemonConfig{
		BinDir: binDir, StateDir: newState(t), Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	stopDaemon(t, d)
	if !strings.Contains(log.String(), "containerd started") {
		t.Errorf("log %q", log.String())
	}
}

func TestPain96Inspect(t *testing.T) {
	h := containerd.Inspect(binDir)
	if len(h.Problems) > 0 {
		t.Errorf("problems on a machine where everything else passes: %q", h.Problems)
	}
	if h.Kernel == "" || h.Cgroups == "none" || h.Programs["containerd"] == "" || h.Programs["runc"] == "" {
		t.Errorf("%+v", h)
	}
	if none := containerd.Inspect(t.TempDir()); len(none.Problems) != 3 {
		t.Errorf("problems without programs: %q", none.Problems)
	}
}

// TestPain96PreflightRefusesWhatCannotMap: layers on a file system that knows no id
// mappings would fail at the first start. ramfs stands for all of them, since
// no kernel has taught it.
func TestPain96PreflightRefusesWhatCannotMap(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("ramfs", dir, "ramfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Unmount(dir, 0) }()
	if err := containerd.Preflight(dir); err == nil || !strings.Contains(err.Error(), "cannot map user ids") {
		t.Errorf("state on ramfs: %v", err)
	}
}

func TestPain96PreflightRefusesTmpOverlay(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(dir, "merged")
	options := "lowerdir=" + dir + "/lower,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if err := syscall.Mount("overlay", merged, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Unmount(merged, 0) }()
	if err := containerd.Preflight(merged); err == nil || !strings.Contains(err.Error(), "lies on an overlay") {
		t.Errorf("state on an overlay: %v", err)
	}
	if err := containerd.Preflight(newState(t)); err != nil {
		t.Error(err)
	}
}
