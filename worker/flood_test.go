package worker

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// TestPain35FloodsAreNotHeld: a tool that writes without end on any of its
// channels costs the worker a few MiB at most.
func TestPain35FloodsAreNotHeld(t *testing.T) {
	const bytes = 200_000_000
	for name, tt := range map[string]struct {
		script string
		kind   call.Kind
	}{
		"Stdout":       {"head -c " + strconv.Itoa(bytes) + " /dev/zero", call.KindOutputLimit},
		"Stderr":       {"head -c " + strconv.Itoa(bytes) + " /dev/zero >&2", ""},
		"SmallUpdates": {`yes '{"type":"update","current":1,"message":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}' | head -c ` + strconv.Itoa(bytes/4) + ` | sed '$d' >&3`, ""},
		"LargeUpdates": {`{ printf '{"type":"update","content":['; printf '{},%.0s' $(seq 150000); printf '{}]}\n'; } > big
			i=0; while [ $i -lt ` + strconv.Itoa(bytes/450_000) + ` ]; do cat big; i=$((i+1)); done >&3`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.run(h.admit("true"))
			before, own, others := peakMemory(t), processorTime(t, syscall.RUSAGE_SELF), processorTime(t, syscall.RUSAGE_CHILDREN)
			r := h.run(h.admit(tt.script, func(j *catalog.Job) {
				j.Spec.Limits.Timeout = catalog.Duration(5 * time.Minute)
			}))
			wantKind(t, r, tt.kind)
			own, others = processorTime(t, syscall.RUSAGE_SELF)-own, processorTime(t, syscall.RUSAGE_CHILDREN)-others
			growth := peakMemory(t) - before
			t.Logf("grew by %d KiB; processor time: the worker %v, the tool and its agent %v", growth, own, others)
			if growth > burden*16<<10 {
				t.Errorf("the worker grew by %d KiB", growth)
			}
			// A call that ended at its limit was too short to compare.
			if tt.kind == "" && own > burden*others {
				t.Errorf("the worker took %v of processor time, the tool and its agent %v", own, others)
			}
		})
	}
}

// peakMemory is the most that this process has held so far, in KiB.
func peakMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); f[0] == "VmHWM:" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no peak")
	return 0
}

// processorTime is that of this process, or of its children that have ended.
func processorTime(t *testing.T, who int) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
