package containerd_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// victimEnv makes the test binary a worker that starts sandboxes, says so and
// waits to be killed.
const victimEnv = "TOOLFLEET_TEST_VICTIM"

// victimGroupEnv is the directory of a cgroup that the victim joins first.
const victimGroupEnv = "TOOLFLEET_TEST_VICTIM_GROUP"

// held keeps the victim's sandboxes from the garbage collector, which would
// close their files, and with them the locks that say somebody lives.
var held []sandbox.Instance

// victim is the other process's main. Its configuration comes as
// "address owner agent expiry id...".
func victim(config string) error {
	ctx := context.Background()
	f := strings.Fields(config)
	expiry, err := time.ParseDuration(f[3])
	if err != nil {
		return err
	}
	if group := os.Getenv(victimGroupEnv); group != "" {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	rt, err := containerd.New(containerd.Config{Address: f[0], Owner: f[1], AgentPath: f[2], BinDir: binDir, Expiry: expiry})
	if err != nil {
		return err
	}
	for _, id := range f[4:] {
		switch id {
		case busy:
			return startForEver(ctx, rt)
		case importing:
			_, err := rt.Import(ctx, new(endless))
			return err
		}
		inst, err := rt.Start(ctx, id, sandbox.Spec{Image: testImage})
		if err != nil {
			return err
		}
		held = append(held, inst)
		// Output that nobody reads blocks the tool and its shim.
		if _, err := inst.Write([]byte("yes\n")); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stdout, "ready")
	select {}
}

// importing among a victim's ids makes it import an archive until it is killed.
const importing = "importing"

// endless is an archive that is half there: one file, and then nothing more.
type endless struct{ said bool }

func (e *endless) Read(b []byte) (int, error) {
	if e.said {
		fmt.Fprintln(os.Stdout, "ready")
		select {}
	}
	e.said = true
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	_ = w.WriteHeader(&tar.Header{Name: "blobs/sha256/x", Typeflag: tar.TypeReg, Size: 100})
	return copy(b, archive.Bytes()), nil
}

// TestPain7KilledImport: a worker that was killed in an import leaves a lease,
// which its restart gives back.
func TestPain7KilledImport(t *testing.T) {
	rt := open(t, "w1")
	ctx, raw := rawClient(t, "toolfleet")
	held := func() int {
		all, err := raw.LeasesService().List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	kill := startVictim(t, "w1", time.Hour, importing)
	kill()
	if n := held(); n != 1 {
		t.Errorf("%d leases are held, want the import's", n)
	}
	sweep(t, rt)
	if n := held(); n != 0 {
		t.Errorf("%d leases are left", n)
	}
	noLeftovers(t, rt)
}

// busy among a victim's ids makes it start and close sandboxes until it is
// killed.
const busy = "busy"

func startForEver(ctx context.Context, rt *containerd.Runtime) error {
	fmt.Fprintln(os.Stdout, "ready")
	for n := 0; ; n++ {
		inst, err := rt.Start(ctx, fmt.Sprintf("busy-%d", n), sandbox.Spec{Image: testImage})
		if err != nil {
			return err
		}
		if err := inst.Close(ctx); err != nil {
			return err
		}
	}
}

// startVictim runs a worker in a process of its own. kill ends it with SIGKILL.
func startVictim(t *testing.T, owner string, expiry time.Duration, ids ...string) (kill func()) {
	t.Helper()
	config := append([]string{daemon.Address(), owner, shell, expiry.String()}, ids...)
	return runUntilReady(t, victimEnv+"="+strings.Join(config, " "))
}

// runUntilReady runs this test binary with env until it says "ready".
func runUntilReady(t *testing.T, env string) (kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), env)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	return kill
}

// sweep fails the test on an error. Its deadline is well below the 10 seconds
// that a shim waits for a reader.
func sweep(t *testing.T, rt *containerd.Runtime) containerd.SweepReport {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	report, err := rt.Sweep(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// sweepAll sweeps until nothing is left: what a killed worker has asked of
// containerd goes on without it, and a cgroup may come into being behind the
// look of one sweep. Workers sweep over and over.
func sweepAll(t *testing.T, rt *containerd.Runtime) {
	t.Helper()
	for range 10 {
		sweep(t, rt)
		if left, err := rt.Leftovers(t.Context()); err == nil && left.None() {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	noLeftovers(t, rt)
}

// TestPain1SweepAfterKill: a worker was killed while its tools were blocked on
// output that nobody reads; its restart removes everything.
func TestPain1SweepAfterKill(t *testing.T) {
	rt := open(t, "w1")
	kill := startVictim(t, "w1", time.Hour, "dead-1", "dead-2", "dead-3")
	if got := sweep(t, rt); got != (containerd.SweepReport{}) {
		t.Errorf("swept the sandboxes of a living worker: %+v", got)
	}
	kill()
	if got := sweep(t, rt); got.Sandboxes != 3 {
		t.Errorf("swept %+v, want 3 sandboxes", got)
	}
	noLeftovers(t, rt)
}

// TestSweepOfOthers: what belongs to another worker is removed when it has
// expired and its worker is dead, and not before.
func TestSweepOfOthers(t *testing.T) {
	rt := open(t, "w1")
	killYoung := startVictim(t, "w2", time.Hour, "young")
	killOld := startVictim(t, "w3", time.Nanosecond, "old")
	if got := sweep(t, rt); got.Sandboxes != 0 {
		t.Errorf("swept living %+v", got)
	}
	killYoung()
	killOld()
	if got := sweep(t, rt); got.Sandboxes != 1 {
		t.Errorf("swept %+v, want the expired one", got)
	}
	records, err := rt.List(t.Context())
	if err != nil || len(records) != 1 || records[0].ID != "young" {
		t.Errorf("left %+v, %v", records, err)
	}
	if err := rt.Remove(t.Context(), "young"); err != nil {
		t.Error(err)
	}
	noLeftovers(t, rt)
}

// TestSweepWithoutRecord: the container's record is lost, or was never there.
func TestSweepWithoutRecord(t *testing.T) {
	rt := open(t, "w1")
	kill := startVictim(t, "w1", time.Hour, "lost")
	kill()
	ctx, raw := rawClient(t, "toolfleet")
	if err := raw.ContainerService().Delete(ctx, "lost"); err != nil {
		t.Fatal(err)
	}
	got := sweep(t, rt)
	if got.Shims != 1 || got.Dirs != 1 {
		t.Errorf("swept %+v, want a shim and a directory", got)
	}
	noLeftovers(t, rt)
}

// TestSweepOfRuncsState: runc was killed with its worker while it created a
// container, and nobody has told it to delete it.
func TestSweepOfRuncsState(t *testing.T) {
	rt := open(t, "w1")
	start(t, rt, "whole", sandbox.Limits{})
	found, err := filepath.Glob("/run/toolfleet/*/runc/*/whole")
	if err != nil || len(found) != 1 {
		t.Fatalf("runc's state of a sandbox is in %v: %v", found, err)
	}
	half := filepath.Join(filepath.Dir(found[0]), "half")
	if err := os.Mkdir(half, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "state.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := sweep(t, rt), (containerd.SweepReport{Dirs: 1}); got != want {
		t.Errorf("swept %+v, want %+v", got, want)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state is still there: %v", err)
	}
	if _, err := os.Stat(found[0]); err != nil {
		t.Error(err)
	}
}

// TestPain9SweepLeavesForeignThings: containers that are not sandboxes, other
// namespaces, and cgroups beside ours.
func TestPain9SweepLeavesForeignThings(t *testing.T) {
	rt := open(t, "w1")
	inst := start(t, rt, "mine", sandbox.Limits{})
	ours, raw := rawClient(t, "toolfleet")
	theirs := namespaces.WithNamespace(ours, "somebody")
	for _, ctx := range []context.Context{ours, theirs} {
		foreign := containers.Container{ID: "foreign", Runtime: containers.RuntimeInfo{Name: "io.containerd.runc.v2"}}
		if _, err := raw.ContainerService().Create(ctx, foreign); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = raw.ContainerService().Delete(context.WithoutCancel(ctx), "foreign") })
	}
	group := foreignGroup(t)

	sweep(t, rt)

	for _, ctx := range []context.Context{ours, theirs} {
		if _, err := raw.ContainerService().Get(ctx, "foreign"); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(group); err != nil {
		t.Error(err)
	}
	if got := ask(t, inst, "echo alive"); got != "alive" {
		t.Errorf("own sandbox said %q", got)
	}
	if err := rt.Remove(ours, "foreign"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("remove of a foreign container: %v", err)
	}
}

// foreignGroup makes a cgroup beside ours, as another fleet would have.
func foreignGroup(t *testing.T) string {
	t.Helper()
	base := "/sys/fs/cgroup"
	if _, err := os.Stat(base + "/memory"); err == nil {
		base += "/memory"
	}
	parent := filepath.Join(base, "toolfleet", "another")
	if err := os.MkdirAll(filepath.Join(parent, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, dir := range []string{filepath.Join(parent, "x"), parent} {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	})
	return filepath.Join(parent, "x")
}

func rawClient(t *testing.T, namespace string) (context.Context, *client.Client) {
	t.Helper()
	c, err := client.New(daemon.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return namespaces.WithNamespace(t.Context(), namespace), c
}

// TestPain8RemoveOfRunning: Remove ends a sandbox whose worker still holds it, and
// that worker's own Close finds nothing to complain about.
func TestPain8RemoveOfRunning(t *testing.T) {
	rt := open(t, "w1")
	inst := start(t, rt, "removed", sandbox.Limits{})
	if err := rt.Remove(t.Context(), "removed"); err != nil {
		t.Fatal(err)
	}
	noLeftovers(t, rt)
	closeInstance(t, inst)
}

// TestDiesBeforeKill (P4): a sandbox that is dead when it is killed is removed
// all the same.
func TestDiesBeforeKill(t *testing.T) {
	rt := open(t, "w1")
	inst := start(t, rt, "early", sandbox.Limits{})
	if _, err := inst.Write([]byte("exit 3\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := inst.Read(make([]byte, 1)); err == nil {
		t.Error("the dead shell said something")
	}
	if err := inst.Kill(endCtx(t)); err != nil {
		t.Error(err)
	}
	closeInstance(t, inst)
	noLeftovers(t, rt)
}

// TestPain6CollectorWhileStarting (P6): garbage collections in between take nothing
// away that a start needs.
func TestPain6CollectorWhileStarting(t *testing.T) {
	rt := open(t, "w1")
	ctx, raw := rawClient(t, "toolfleet")
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			// A synchronous delete of a lease collects.
			lease, err := raw.LeasesService().Create(ctx, leases.WithRandomID())
			if err == nil {
				_ = raw.LeasesService().Delete(ctx, lease, leases.SynchronousDelete)
			}
		}
	}()
	for n := range 20 {
		inst, err := rt.Start(t.Context(), fmt.Sprintf("gc-%d", n), sandbox.Spec{Image: testImage})
		if err != nil {
			t.Error(err)
			break
		}
		closeInstance(t, inst)
	}
	cancel()
	<-done
	noLeftovers(t, rt)
}
