package containerd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// onV2 tells which version of cgroups the tests run on; `make test-cgroup2`
// runs them on the other.
func onV2() bool { return containerd.Inspect(binDir).Cgroups == "v2" }

// groupFile reads a file of the cgroup of the sandbox id, by its name on v1
// ("controller/file") or v2.
func groupFile(t *testing.T, id, v1, v2 string) string {
	t.Helper()
	controller, file := filepath.Split(v1)
	if onV2() {
		controller, file = "", v2
	}
	found, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", controller, "toolfleet", "*", id, file))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s of %s: found %v, %v", file, id, found, err)
	}
	raw, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

// TestBoundsOfGroup: the limits stand in the kernel's files.
func TestBoundsOfGroup(t *testing.T) {
	rt := open(t, "w1")
	start(t, rt, "bounds", sandbox.Limits{CPU: 0.5, Memory: 96 << 20, Disk: 32 << 20, Pids: 30})
	for _, c := range []struct{ name, v1, v2, wantV1, wantV2 string }{
		{"memory and disk", "memory/memory.limit_in_bytes", "memory.max", "134217728", "134217728"},
		{"processes and the agent's", "pids/pids.max", "pids.max", "46", "46"},
		{"processor", "cpu/cpu.cfs_quota_us", "cpu.max", "50000", "50000 100000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.wantV1
			if onV2() {
				want = c.wantV2
			}
			if got := groupFile(t, "bounds", c.v1, c.v2); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	if containerd.Inspect(binDir).SwapLimit {
		// v1 bounds memory and swap as one sum, v2 swap alone.
		want := map[bool]string{false: "134217728", true: "0"}[onV2()]
		if got := groupFile(t, "bounds", "memory/memory.memsw.limit_in_bytes", "memory.swap.max"); got != want {
			t.Errorf("swap %q, want %q", got, want)
		}
	}
}

// TestPeakOfEachCall: a sandbox that serves several calls tells the peak of
// each, or that it is unknown.
func TestPeakOfEachCall(t *testing.T) {
	const much = 32 << 20
	rt := open(t, "w1")
	inst := start(t, rt, "peaks", sandbox.Limits{})
	peak := func() int64 {
		u, err := inst.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return u.PeakMemory
	}
	reset := inst.(interface {
		ResetPeak(ctx context.Context) error
	}).ResetPeak
	greedy, modest := fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=%d count=1", much), "true"
	for n, c := range []struct {
		command string
		atLeast int64
	}{{modest, 0}, {greedy, much}, {modest, 0}, {greedy, much}} {
		if n > 0 {
			if err := reset(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ask(t, inst, c.command)
		got := peak()
		if n > 0 && !countsAnew(t) {
			if got != 0 {
				t.Errorf("call %d: a peak of %d where none can be known", n, got)
			}
			continue
		}
		if got <= c.atLeast || c.atLeast == 0 && got > much {
			t.Errorf("call %d: a peak of %d after %s", n, got, c.command)
		}
	}
	if err := inst.Kill(endCtx(t)); err != nil {
		t.Fatal(err)
	}
	closeInstance(t, inst)
	if err := reset(t.Context()); err == nil {
		t.Error("a sandbox that is gone counts anew")
	}
}

// countsAnew tells whether the kernel can reset a peak: always on v1, since
// Linux 6.12 on v2.
func countsAnew(t *testing.T) bool {
	t.Helper()
	if !onV2() {
		return true
	}
	var major, minor int
	if _, err := fmt.Sscanf(containerd.Inspect(binDir).Kernel, "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > 6 || major == 6 && minor >= 12
}

// removeGroup removes a cgroup and those below it, which have no processes.
func removeGroup(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			removeGroup(t, filepath.Join(dir, e.Name()))
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Error(err)
	}
}

// TestDelegatedGroup: on v2 a worker that was given a group to divide has its
// sandboxes there, so that they count towards its limits; on v1, and in a unit
// of systemd that is not made for it, they lie below the root. Wherever they
// are, another worker removes them when theirs is dead.
func TestDelegatedGroup(t *testing.T) {
	rt := open(t, "w1")
	base := "/sys/fs/cgroup"
	if !onV2() {
		base += "/memory"
	}
	_, err := os.Stat("/run/systemd/system")
	for _, c := range []struct {
		name, id  string
		delegated bool // as systemd marks it
		own       string
		nested    bool // on v2
	}{
		{"container", "given-1", false, "", err != nil},
		{"unit with a subgroup", "given-2", true, "worker", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			group := filepath.Join(base, "toolfleet-"+c.id)
			own := filepath.Join(group, c.own)
			if err := os.MkdirAll(own, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { removeGroup(t, group) })
			if c.delegated && onV2() {
				if err := unix.Setxattr(group, "trusted.delegate", []byte("1"), 0); err != nil {
					t.Fatal(err)
				}
			}
			where := base
			if onV2() && c.nested {
				where = group
			}
			t.Setenv(victimGroupEnv, own)
			kill := startVictim(t, "w1", time.Hour, c.id)
			found, err := filepath.Glob(filepath.Join(where, "toolfleet", "*", c.id))
			if err != nil || len(found) != 1 {
				t.Fatalf("sandbox below %s: %v, %v", where, found, err)
			}
			if pids, err := os.ReadFile(filepath.Join(found[0], "cgroup.procs")); err != nil || len(pids) == 0 {
				t.Errorf("no process of the sandbox is in its group: %v", err)
			}
			kill()
			sweep(t, rt)
			if _, err := os.Stat(found[0]); !os.IsNotExist(err) {
				t.Errorf("the group is still there: %v", err)
			}
			noLeftovers(t, rt)
		})
	}
}
