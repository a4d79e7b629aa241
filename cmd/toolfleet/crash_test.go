package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
)

// TestKill9 kills the whole fleet while it runs a call of an idempotent and of
// another tool. The next fleet on the same state has swept the host when it is
// ready; the first call is run again, the second is not, and says so.
func TestKill9(t *testing.T) {
	dir := t.TempDir()
	f := startFleet(t, dir)
	script := object{"script": "sleep 3; echo survived"}
	again, once := f.submit("repeatable", script), f.submit("once", script)
	f.awaitRunning(again)
	f.awaitRunning(once)
	f.kill()
	before := traces(t, dir)
	if before.shims == 0 {
		t.Fatalf("nothing was left by a kill -9 (%+v): the test proves nothing", before)
	}

	orphans := sandboxes(t, dir)

	f = startFleet(t, dir, "--log-level", "debug")
	began := time.Now()
	for _, id := range orphans {
		if n := tracesOf(t, id); n > 0 {
			t.Errorf("the next fleet is ready and %d traces of sandbox %s are left", n, id)
		}
	}
	if got := f.await(once); got.kind() != call.KindInterrupted || got.Status != call.StatusInterrupted {
		t.Errorf("the call that may not be repeated ended as %q: %s", got.Status, got.text())
	}
	if got := f.await(again); got.Result.IsError || got.text() != "survived\n" || got.Result.Execution.Attempt != 2 {
		t.Errorf("the call that may be repeated ended as %+v: %s", got.Result, got.text())
	}
	t.Logf("both answered %s after the second start", time.Since(began).Round(time.Millisecond))
	f.stop()
	if after := traces(t, dir); after != (trace{}) {
		t.Errorf("left behind: %+v", after)
	}
}

// TestKilledContainerdIsReplaced kills the fleet and its containerd, so that
// shims are left without anybody who knows them.
func TestKilledContainerdIsReplaced(t *testing.T) {
	dir := t.TempDir()
	f := startFleet(t, dir)
	id := f.submit("once", object{"script": "sleep 60"})
	f.awaitRunning(id)
	f.kill()
	for _, pid := range processes("containerd", dir) {
		if err := kill(pid); err != nil {
			t.Fatal(err)
		}
	}
	f = startFleet(t, dir)
	if got := f.await(id); got.kind() != call.KindInterrupted {
		t.Errorf("ended as %q: %s", got.Status, got.text())
	}
	if got := f.call("word-count", object{"text": "still here"}); got.Result.IsError {
		t.Errorf("the next fleet does not work: %s", got.text())
	}
	f.stop()
	if after := traces(t, dir); after != (trace{}) {
		t.Errorf("left behind: %+v", after)
	}
}

// trace counts what a fleet has on the host, seen from outside: by its own
// eyes it might be blind to what it forgot.
type trace struct {
	containerds, shims, mounts, cgroups, dirs int
}

// traces counts what belongs to the fleet whose state is under dir: what names
// its containerd's directories, or its worker. Other fleets may be on the host.
func traces(t testing.TB, dir string) trace {
	t.Helper()
	run, worker := places(t, dir)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return trace{
		containerds: len(processes("containerd", dir)),
		shims:       len(processes("containerd-shim-runc-v2", run)),
		mounts:      strings.Count(string(mounts), dir) + strings.Count(string(mounts), worker) + strings.Count(string(mounts), run+"/"),
		cgroups:     count(t, "/sys/fs/cgroup/toolfleet/*/"+worker+"*", "/sys/fs/cgroup/*/toolfleet/*/"+worker+"*"),
		dirs:        count(t, "/run/toolfleet/*/*/"+worker+"*", run+"/state/*/*/"+worker+"*"),
	}
}

// sweep ends what a failed test's fleet left, so that it fails alone. After a
// fleet that was stopped there is nothing to do.
func sweep(t testing.TB, dir string) {
	pids := processes("containerd", dir)
	for _, pid := range pids {
		_ = kill(pid)
	}
	if len(pids) == 0 {
		return
	}
	run, worker := places(t, dir)
	for _, pid := range processes("containerd-shim-runc-v2", run) {
		_ = kill(pid)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		for _, of := range []string{dir, run, worker} {
			if f := strings.Fields(line); len(f) > 1 && strings.Contains(f[1], of) {
				_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
			}
		}
	}
}

// places reads where the fleet whose state is under dir has its containerd's
// short-lived files, and the id of its worker.
func places(t testing.TB, dir string) (run, worker string) {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(dir, "state", "containerd", "config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	socket := regexp.MustCompile(`address = "([^"]+)"`).FindSubmatch(config)
	id, err := os.ReadFile(filepath.Join(dir, "state", "worker-id"))
	if err != nil || socket == nil {
		t.Fatal("the fleet's state has no worker id or no containerd", err)
	}
	return filepath.Dir(string(socket[1])), strings.TrimSpace(string(id))
}

// sandboxes lists the ids of the sandboxes whose shims run.
func sandboxes(t testing.TB, dir string) []string {
	t.Helper()
	run, _ := places(t, dir)
	var ids []string
	for _, pid := range processes("containerd-shim-runc-v2", run) {
		args, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if m := regexp.MustCompile(`-id\x00([^\x00]+)`).FindSubmatch(args); err == nil && m != nil {
			ids = append(ids, string(m[1]))
		}
	}
	if len(ids) == 0 {
		t.Fatal("no shim runs: the test proves nothing")
	}
	return ids
}

// tracesOf counts what is left of one sandbox: its shim, mounts, cgroups, and
// the directories with its FIFOs and its bundle.
func tracesOf(t testing.TB, id string) int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return len(processes("containerd-shim-runc-v2", id)) + strings.Count(string(mounts), id) +
		count(t, "/sys/fs/cgroup/toolfleet/*/"+id+"*", "/sys/fs/cgroup/*/toolfleet/*/"+id+"*", "/run/toolfleet/*/*/"+id+"*", "/run/toolfleet/*/*/*/*/"+id+"*")
}

func count(t testing.TB, patterns ...string) int {
	t.Helper()
	n := 0
	for _, p := range patterns {
		names, err := filepath.Glob(p)
		if err != nil {
			t.Fatal(err)
		}
		n += len(names)
	}
	return n
}

// processes lists the processes whose program has the given name and whose
// arguments hold the given text.
func processes(name, text string) []int {
	var pids []int
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		args, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		argv := strings.Split(string(args), "\x00")
		if filepath.Base(argv[0]) != name || !strings.Contains(string(args), text) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(p)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
