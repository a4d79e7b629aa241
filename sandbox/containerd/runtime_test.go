package containerd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
)

// noLeftovers fails the test if anything is left of sandboxes. A shim that was
// told to go needs a moment, so it looks until there is nothing or it has had
// enough.
func noLeftovers(tb testing.TB, rt *containerd.Runtime) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), 5*time.Second)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	var left containerd.Leftovers
	for {
		now, err := rt.Leftovers(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			tb.Fatal(err)
		case err == nil:
			left = now
		}
		if left.None() {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			tb.Fatalf("left over: %+v", left)
		}
	}
}

// start starts a sandbox whose first process is a shell.
func start(tb testing.TB, rt *containerd.Runtime, id string, limits sandbox.Limits) sandbox.Instance {
	tb.Helper()
	inst, err := rt.Start(tb.Context(), id, sandbox.Spec{Image: testImage, Limits: limits})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { closeInstance(tb, inst) })
	return inst
}

func closeInstance(tb testing.TB, inst sandbox.Instance) {
	tb.Helper()
	if err := inst.Close(endCtx(tb)); err != nil {
		tb.Error(err)
	}
}

// ask runs a command in the sandbox's shell and returns what it printed.
func ask(tb testing.TB, inst sandbox.Instance, command string) string {
	tb.Helper()
	const end = "--end--"
	if _, err := fmt.Fprintf(inst, "(%s) 2>&1; echo; echo %s\n", command, end); err != nil {
		tb.Fatal(err)
	}
	var out strings.Builder
	lines := bufio.NewScanner(inst)
	for lines.Scan() {
		if lines.Text() == end {
			return strings.TrimSpace(out.String())
		}
		out.WriteString(lines.Text() + "\n")
	}
	tb.Fatalf("%s: the shell ended: %v: %s", command, lines.Err(), out.String())
	return ""
}

func TestLife(t *testing.T) {
	rt := open(t, "w1")
	inst := start(t, rt, "life-1", sandbox.Limits{})
	if got := ask(t, inst, "echo hello"); got != "hello" {
		t.Errorf("the shell said %q", got)
	}
	records, err := rt.List(t.Context())
	if err != nil || len(records) != 1 {
		t.Fatalf("list: %v, %v", records, err)
	}
	if r := records[0]; r.ID != "life-1" || r.Owner != "w1" || !r.Expires.After(r.Created) {
		t.Errorf("record %+v", r)
	}
	if err := inst.Kill(endCtx(t)); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(inst); err != nil || len(rest) > 0 {
		t.Errorf("after kill: %q, %v", rest, err)
	}
	if u, err := inst.Usage(t.Context()); err != nil || u.PeakMemory == 0 || u.CPU == 0 || u.OOMKills != 0 {
		t.Errorf("usage after kill: %+v, %v", u, err)
	}
	closeInstance(t, inst)
	closeInstance(t, inst) // again
	noLeftovers(t, rt)
	if err := rt.Remove(t.Context(), "life-1"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("remove what is gone: %v", err)
	}
}

// TestInside looks at a sandbox from inside, with the agent's privileges.
func TestInside(t *testing.T) {
	rt := open(t, "w1")
	inst := start(t, rt, "inside", sandbox.Limits{Disk: 8 << 20})
	for _, c := range []struct{ name, command, want string }{
		{"id range", "cat /proc/self/uid_map | awk '{print $1, $3, ($2 >= 100000)}'", "0 65536 1"},
		{"files of the image are root's", "stat -c %u /bin/busybox", "0"},
		{"read-only root", "touch /x || echo refused", "touch: /x: Read-only file system\nrefused"},
		{"loopback only", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo"},
		{"loopback up", "ip -o link | grep -c 'LOOPBACK,UP'", "1"},
		{"no environment of the host", "env | cut -d= -f1 | sort | tr '\\n' ' '", "HOME PATH PWD SHLVL"},
		{"first process", "echo $$", "1"},
		{"host name", "hostname", "sandbox"},
		{"no new privileges", "grep NoNewPrivs /proc/self/status", "NoNewPrivs:\t1"},
		{"filtered", "grep Seccomp: /proc/self/status", "Seccomp:\t2"},
		{"no core dumps", "ulimit -c", "0"},
		{"files", "ulimit -Hn", "4096"},
		{"masked", "cat /proc/keys /proc/timer_list", ""},
		{"of /sys only the processors", "ls -A /sys /sys/devices /sys/devices/system | tr '\\n' ' '", "/sys: devices  /sys/devices: system  /sys/devices/system: cpu"},
		{"the processors are told", "[ -s /sys/devices/system/cpu/online ] && echo told", "told"},
		{"sysctl", "echo 1 > /proc/sys/kernel/shmmax || echo refused", "sh: can't create /proc/sys/kernel/shmmax: Read-only file system\nrefused"},
		{"limits of the user namespace", "echo 16 > /proc/sys/user/max_inotify_instances && cat /proc/sys/user/max_inotify_instances", "16"},
		{"one disk", "df -k /tmp /workspace /home/tool /dev/shm | awk 'NR>1 {print $2}' | uniq", "8192"},
		{"owner of the places", "stat -c '%u %a' /tmp /workspace /home/tool /dev/shm | tr '\\n' ','", "65532 1777,65532 755,65532 755,65532 1777,"},
		{"no mount", "mount -t tmpfs none /tmp || echo refused", "mount: permission denied (are you root?)\nrefused"},
		{"no new namespace", "unshare -U true || echo refused", "unshare: unshare(0x10000000): Operation not permitted\nrefused"},
		{"no device", "mknod /tmp/d b 7 0 || echo refused", "mknod: /tmp/d: Operation not permitted\nrefused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ask(t, inst, c.command); got != c.want {
				t.Errorf("%s\ngot  %q\nwant %q", c.command, got, c.want)
			}
		})
	}
}

func TestMemoryLimitCounts(t *testing.T) {
	rt := open(t, "w1")
	inst := start(t, rt, "oom", sandbox.Limits{Memory: 16 << 20, Disk: 1 << 20})
	ask(t, inst, "echo 1000 > /proc/self/oom_score_adj; dd if=/dev/zero of=/dev/null bs=64M count=1")
	u, err := inst.Usage(t.Context())
	if err != nil || u.OOMKills == 0 || u.PeakMemory < 16<<20 {
		t.Errorf("usage %+v, %v", u, err)
	}
	if err := inst.Kill(endCtx(t)); err != nil {
		t.Fatal(err)
	}
	if after, err := inst.Usage(t.Context()); err != nil || after.OOMKills != u.OOMKills {
		t.Errorf("usage after kill %+v, %v", after, err)
	}
}

func TestPidsLimitCounts(t *testing.T) {
	rt := open(t, "w1")
	inst := start(t, rt, "pids", sandbox.Limits{Pids: 8})
	ask(t, inst, "i=0; while [ $i -lt 64 ]; do sleep 100 & i=$((i+1)); done")
	if u, err := inst.Usage(t.Context()); err != nil || u.PidsRefused == 0 {
		t.Errorf("usage %+v, %v", u, err)
	}
}

// TestDiskIsOneSum: what is written to one place is missing in the others.
func TestDiskIsOneSum(t *testing.T) {
	rt := open(t, "w1")
	inst := start(t, rt, "disk", sandbox.Limits{Disk: 4 << 20})
	got := ask(t, inst, "for d in /tmp /workspace /home/tool /dev/shm; do su -c true 2>/dev/null; dd if=/dev/zero of=$d/f bs=1M count=3 2>&1 | grep -c 'No space'; done")
	// The shell is root without CAP_DAC_OVERRIDE, so it may write to the two
	// places with mode 1777 only.
	if got != "0\n0\n0\n1" {
		t.Errorf("no space left: %q", got)
	}
}

func TestStartIsConcurrent(t *testing.T) {
	rt := open(t, "w1")
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			inst, err := rt.Start(t.Context(), fmt.Sprintf("many-%d", n), sandbox.Spec{Image: testImage})
			if err != nil {
				t.Error(err)
				return
			}
			closeInstance(t, inst)
		})
	}
	all.Wait()
	noLeftovers(t, rt)
}

func TestStartRefuses(t *testing.T) {
	rt := open(t, "w1")
	for _, c := range []struct {
		name, id string
		spec     sandbox.Spec
		is       error
	}{
		{"bad id", "../x", sandbox.Spec{Image: testImage}, nil},
		{"image that is not there", "x", sandbox.Spec{Image: "local/none:1", Pull: "never"}, sandbox.ErrImage},
		{"no reference", "x", sandbox.Spec{Image: "UPPER CASE"}, sandbox.ErrImage},
		{"runtime not there", "x", sandbox.Spec{Image: testImage, Runtime: "no-such-runtime"}, nil},
		{"isolation not there", "x", sandbox.Spec{Image: testImage, Isolation: "none"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			inst, err := rt.Start(t.Context(), c.id, c.spec)
			if err == nil {
				closeInstance(t, inst)
				t.Fatal("started")
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
		})
	}
	noLeftovers(t, rt)
}

// TestSameIDTwice: the second start must not harm the first.
func TestSameIDTwice(t *testing.T) {
	rt := open(t, "w1")
	inst := start(t, rt, "twice", sandbox.Limits{})
	if other, err := rt.Start(t.Context(), "twice", sandbox.Spec{Image: testImage}); err == nil {
		closeInstance(t, other)
		t.Fatal("started twice")
	}
	if got := ask(t, inst, "echo alive"); got != "alive" {
		t.Errorf("the first said %q", got)
	}
}
