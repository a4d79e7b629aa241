package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/sandbox/wire"
)

func TestVerdict(t *testing.T) {
	exit := func(x wire.Exit) ending { return ending{exit: &x} }
	oom, pids := Usage{OOMKills: 1}, Usage{PidsRefused: 1}
	for _, c := range []struct {
		name  string
		first ending
		usage Usage
		want  Cause
	}{
		{"success", exit(wire.Exit{}), Usage{}, CauseExited},
		{"non-zero exit", exit(wire.Exit{Code: 3}), Usage{}, CauseExited},
		{"signal", exit(wire.Exit{Signal: 9}), Usage{}, CauseSignaled},
		{"not started", exit(wire.Exit{NotStarted: "no such file"}), oom, CauseNotStarted},
		{"killed for memory", exit(wire.Exit{Signal: 9}), oom, CauseOutOfMemory},
		{"a child was killed for memory", exit(wire.Exit{Code: 137}), oom, CauseOutOfMemory},
		{"success all the same", exit(wire.Exit{}), Usage{OOMKills: 1, PidsRefused: 1}, CauseExited},
		{"success with a full disk", exit(wire.Exit{DiskFull: true}), Usage{}, CauseExited},
		{"fork refused", exit(wire.Exit{Code: 1}), pids, CausePidsLimit},
		{"disk full", exit(wire.Exit{Code: 1, DiskFull: true}), Usage{}, CauseDiskLimit},
		{"disk full and out of memory", exit(wire.Exit{Signal: 9, DiskFull: true}), oom, CauseDiskLimit},
		{"memory before pids", exit(wire.Exit{Code: 1}), Usage{OOMKills: 1, PidsRefused: 1}, CauseOutOfMemory},
		{"long message", exit(wire.Exit{LongMessage: true}), Usage{}, CauseProtocol},
		{"stopped", ending{cause: CauseStopped}, oom, CauseStopped},
		{"output limit", ending{cause: CauseOutputLimit}, oom, CauseOutputLimit},
		{"agent gone", ending{lost: io.EOF}, Usage{}, CauseProtocol},
		{"agent gone for memory", ending{lost: io.EOF}, oom, CauseOutOfMemory},
		{"bad frame", ending{lost: wire.ErrFrame}, Usage{}, CauseProtocol},
	} {
		if got := verdict(c.first, c.usage); got.Cause != c.want {
			t.Errorf("%s: %q, want %q", c.name, got.Cause, c.want)
		}
	}
	for n, want := range map[int]string{9: "SIGKILL", 15: "SIGTERM", 64: "signal 64"} {
		if got := signalName(n); got != want {
			t.Errorf("signal %d is %q, want %q", n, got, want)
		}
	}
}

// TestPain56WhoKilledIt: an end names its signal and its killer, and nothing is
// guessed from the number of a signal.
func TestPain56WhoKilledIt(t *testing.T) {
	exit := func(x wire.Exit) ending { return ending{exit: &x} }
	oom := Usage{OOMKills: 1}
	for _, c := range []struct {
		name  string
		first ending
		usage Usage
		want  Exit
	}{
		{"success", exit(wire.Exit{}), Usage{}, Exit{}},
		{"an exit with 137", exit(wire.Exit{Code: 137}), Usage{}, Exit{Code: 137}},
		{"its own SIGKILL", exit(wire.Exit{Signal: 9}), Usage{}, Exit{Signal: "SIGKILL", KilledBy: KilledByTool}},
		{"a crash", exit(wire.Exit{Signal: 11}), Usage{}, Exit{Signal: "SIGSEGV", KilledBy: KilledByTool}},
		{"out of memory", exit(wire.Exit{Signal: 9}), oom, Exit{Signal: "SIGKILL", KilledBy: KilledByKernel}},
		{"an abort for want of memory", exit(wire.Exit{Signal: 6}), oom, Exit{Signal: "SIGABRT", KilledBy: KilledByTool}},
		{"the sandbox out of memory", ending{lost: io.EOF}, oom, Exit{Signal: "SIGKILL", KilledBy: KilledByKernel}},
		{"the sandbox lost", ending{lost: io.EOF}, Usage{}, Exit{}},
		{"stopped", ending{cause: CauseStopped}, oom, Exit{Signal: "SIGKILL", KilledBy: KilledByFleet}},
		{"stopped, and it heard", ending{cause: CauseStopped, exit: &wire.Exit{Code: 3}}, Usage{}, Exit{Code: 3}},
		{"stopped, and it obeyed", ending{cause: CauseStopped, exit: &wire.Exit{Signal: 15}}, Usage{}, Exit{Signal: "SIGTERM", KilledBy: KilledByFleet}},
		{"over its output limit", ending{cause: CauseOutputLimit}, Usage{}, Exit{Signal: "SIGKILL", KilledBy: KilledByFleet}},
	} {
		r := run{first: c.first, began: time.Now()}
		got := r.exit(c.usage)
		if got.Code != c.want.Code || got.Signal != c.want.Signal || got.KilledBy != c.want.KilledBy {
			t.Errorf("%s: code %d, signal %q, killed by %q, want %+v", c.name, got.Code, got.Signal, got.KilledBy, c.want)
		}
	}
	r := run{first: ending{cause: CauseStopped}}
	if got := r.exit(Usage{}); got.Signal != "" || got.KilledBy != "" {
		t.Errorf("stopped before it began: signal %q, killed by %q", got.Signal, got.KilledBy)
	}
}

// TestHeadTail: whatever the pieces, the first and the last bytes are kept, and
// nothing is kept twice or lost without a mark.
func TestHeadTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h headTail
		var all []byte
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, wire.MaxChunk), 0, 12).Draw(t, "sizes") {
			piece := bytes.Repeat([]byte{byte('a' + i)}, n)
			h.add(piece)
			all = append(all, piece...)
			if len(h.head)+len(h.tail) > stderrHead+3*stderrTail {
				t.Fatalf("%d bytes are held", len(h.head)+len(h.tail))
			}
		}
		got := h.bytes()
		if len(all) <= stderrHead+stderrTail {
			if !bytes.Equal(got, all) {
				t.Fatalf("%d bytes became %d", len(all), len(got))
			}
			return
		}
		head, tail := all[:stderrHead], all[len(all)-stderrTail:]
		if len(got) > 64<<10 || !bytes.HasPrefix(got, head) || !bytes.HasSuffix(got, tail) {
			t.Fatalf("%d bytes are not the head and the tail of %d", len(got), len(all))
		}
		if mark := string(got[len(head) : len(got)-len(tail)]); !strings.Contains(mark, "bytes left out") {
			t.Fatalf("the mark is %q", mark)
		}
	})
}

func TestForkWatch(t *testing.T) {
	for _, c := range []struct {
		refused []int64
		want    bool
	}{
		{[]int64{0, 0, 0}, false},
		{[]int64{5, 5, 5, 5}, false},
		{[]int64{0, 3, 3, 9, 9}, false},
		{[]int64{0, 3, 9}, true},
		{[]int64{7, 9}, true},
	} {
		var w forkWatch
		got := false
		for _, n := range c.refused {
			got = w.bomb(n) || got
		}
		if got != c.want {
			t.Errorf("%v: %v", c.refused, got)
		}
	}
}

func TestUser(t *testing.T) {
	root, plain := wire.Hello{}, wire.Hello{UID: 1000, GID: 100}
	for _, c := range []struct {
		in       string
		agent    wire.Hello
		uid, gid int
		ok       bool
	}{
		{"", root, 65532, 65532, true},
		{"", plain, 1000, 100, true},
		{"7", root, 7, 7, true},
		{"7:8", root, 7, 8, true},
		{"0:0", root, 0, 0, true},
		{"root", root, 0, 0, false},
		{"7:", root, 0, 0, false},
		{"-1", root, 0, 0, false},
		{"4294967295", root, 0, 0, false}, // -1 for the kernel: "leave it"
		{"1:2:3", root, 0, 0, false},
	} {
		uid, gid, err := user(c.in, c.agent)
		if uid != c.uid || gid != c.gid || (err == nil) != c.ok {
			t.Errorf("%q: %d:%d, %v", c.in, uid, gid, err)
		}
	}
}

// A sandbox that was taken away from outside is our failure, whatever its tool
// had done by then. An agent that goes away by itself is not.
func TestLostFromOutsideIsOurFailure(t *testing.T) {
	lost := fmt.Errorf("the shim died: %w", ErrLost)
	for _, c := range []struct {
		name  string
		began bool
		lost  error
		fails bool
	}{
		{"before the tool started", false, io.EOF, true},
		{"while it ran", true, lost, true},
		{"by itself", true, io.EOF, false},
	} {
		r := newRun(Process{}, Sink{})
		if c.began {
			r.began = time.Now()
		}
		r.end(ending{lost: c.lost})
		if err := r.failure(); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
