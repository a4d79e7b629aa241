package containerd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// shimPIDs lists the shims of the test's containerd.
func shimPIDs(t *testing.T) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(raw), "containerd-shim-") || !strings.Contains(string(raw), daemon.Address()+"\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestShimKilled (P1): a shim that is killed takes its sandboxes with it, which
// are seen to end and leave nothing; the next one has another shim.
func TestShimKilled(t *testing.T) {
	rt := open(t, "w1")
	insts := []sandbox.Instance{start(t, rt, "shared-1", sandbox.Limits{}), start(t, rt, "shared-2", sandbox.Limits{})}
	pids := shimPIDs(t)
	if len(pids) != 1 {
		t.Fatalf("two sandboxes have the shims %v", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, inst := range insts {
		if _, err := inst.Read(make([]byte, 1)); !errors.Is(err, sandbox.ErrLost) {
			t.Errorf("the stream of a sandbox without a shim ends with %v", err)
		}
	}
	next := start(t, rt, "shared-3", sandbox.Limits{})
	if got := ask(t, next, "echo alive"); got != "alive" {
		t.Errorf("the next sandbox said %q", got)
	}
	for _, inst := range append(insts, next) {
		closeInstance(t, inst)
	}
	noLeftovers(t, rt)
}

// TestPain1WorkerKilledWhileStarting (P1): wherever in its starts a worker is
// killed, the next one finds all that is left of them.
func TestPain1WorkerKilledWhileStarting(t *testing.T) {
	rt := open(t, "w1")
	for n := range 10 {
		kill := startVictim(t, "w1", time.Hour, busy)
		// In another place of a start, or of an end, each time.
		<-time.After(time.Duration(n) * 20 * time.Millisecond)
		kill()
		sweepAll(t, rt)
		if t.Failed() {
			t.Fatalf("killed after %d steps of time", n)
		}
	}
	if records, err := rt.List(t.Context()); err != nil || len(records) > 0 {
		t.Error(errors.Join(err, fmt.Errorf("left %v", records)))
	}
}
