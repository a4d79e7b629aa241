package sandboxtest

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/toolfleet/toolfleet/sandbox"
)

// testDead: a sandbox whose first process somebody else has killed ends its
// call, and is removed like any other: that there is nothing to kill stops
// nothing.
func (s *suite) testDead(t *testing.T) {
	if s.OwnKernel != "" || !s.Isolation {
		// The host does not see the tool, and so not its parent; or the death of
		// an agent is its own affair, and its tool lives on.
		return
	}
	m := mark()
	sb := s.open(t)
	exit, err := sb.Run(testContext(t), s.probe("tree", "0", m), sandbox.Sink{Stderr: func([]byte) {
		for _, dir := range withMark(t, m) {
			if err := unix.Kill(parent(t, dir), unix.SIGKILL); err != nil {
				t.Errorf("kill its first process: %v", err)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, exit, sandbox.CauseProtocol)
	closeSandbox(t, sb)
	if n := marked(t, m); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	if slices.ContainsFunc(s.list(t), func(r sandbox.Record) bool { return r.ID == sb.ID() }) {
		t.Error("it is still in the list")
	}
}

// parent is the parent of the process with a directory of /proc.
func parent(t *testing.T, dir string) int {
	t.Helper()
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// testExitOrder: a tool that writes and ends at once has lost nothing, however
// often it is run. Where a sandbox serves many calls, it is run many times.
func (s *suite) testExitOrder(t *testing.T) {
	runs := 10
	if s.Spec.Isolation == "cell" && s.OwnKernel == "" {
		runs = 1000
	}
	var sb *sandbox.Sandbox
	for i := range runs {
		if sb == nil || !sb.Reusable() {
			if sb != nil {
				closeSandbox(t, sb)
			}
			var err error
			if sb, err = sandbox.Open(testContext(t), s.runtime, NewID(), s.Spec); err != nil {
				t.Fatal(err)
			}
		}
		n := strconv.Itoa(i)
		exit, err := sb.Run(testContext(t), s.probe("say", "o"+n, "e"+n, `m{"type":"result","content":"`+n+`"}`), sandbox.Sink{})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, exit, sandbox.CauseExited)
		if string(exit.Stdout) != n || string(exit.Stderr) != n || string(exit.Result) != `{"type":"result","content":"`+n+`"}` {
			t.Fatalf("run %d: stdout %q, stderr %q, result %s", i, exit.Stdout, exit.Stderr, exit.Result)
		}
	}
	closeSandbox(t, sb)
}
