package sandboxtest

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// testEnds: however a tool ends, it is told right, and no process is left.
func (s *suite) testEnds(t *testing.T) {
	t.Run("Code", s.testCode)
	t.Run("Signal", s.testSignal)
	t.Run("NotStarted", s.testNotStarted)
	t.Run("Cancel", s.testCancel)
	t.Run("Deadline", s.testDeadline)
	t.Run("CancelBeforeStart", s.testCancelBeforeStart)
	t.Run("Pain23PortOfAGrandchild", s.testPort)
	t.Run("Pain30PipesHeldByOthers", s.testHeld)
	t.Run("RemovedWhileIdle", s.testRemovedWhileIdle)
	t.Run("RemovedWhileRunning", s.testRemovedWhileRunning)
}

func (s *suite) testCode(t *testing.T) {
	exit := s.run(t, s.probe("exit", "42"), sandbox.Sink{})
	expect(t, exit, sandbox.CauseExited)
	if exit.Code != 42 || exit.Started.IsZero() || exit.Ended.Before(exit.Started) {
		t.Errorf("code %d, from %v to %v", exit.Code, exit.Started, exit.Ended)
	}
}

// testSignal: a tool that kills itself with SIGKILL did not run out of memory.
func (s *suite) testSignal(t *testing.T) {
	for _, c := range []struct{ number, name string }{{"1", "SIGHUP"}, {"9", "SIGKILL"}, {"15", "SIGTERM"}} {
		exit := s.run(t, s.probe("signal", c.number), sandbox.Sink{})
		expect(t, exit, sandbox.CauseSignaled)
		if exit.Signal != c.name {
			t.Errorf("signal %q, want %q", exit.Signal, c.name)
		}
	}
}

func (s *suite) testNotStarted(t *testing.T) {
	for _, c := range []struct {
		name, says string
		p          sandbox.Process
	}{
		{"NoSuchFile", "no such file", sandbox.Process{Argv: []string{"/no/such/tool"}}},
		{"NotInPath", "no such program in PATH", sandbox.Process{Argv: []string{"no-such-tool"}}},
		{"NotExecutable", "permission denied", sandbox.Process{Argv: []string{"/proc/self/status"}}},
		{"NoDirectory", "working directory", sandbox.Process{Argv: []string{s.Probe, "exit", "0"}, Dir: "/no/such/directory"}},
		{"NoProgram", "no program", sandbox.Process{}},
		{"BadUser", "user", sandbox.Process{Argv: []string{s.Probe, "exit", "0"}, User: "root"}},
		{"NUL", "NUL", sandbox.Process{Argv: []string{s.Probe, "a\x00b"}}},
		{"TooMuch", "arguments", sandbox.Process{Argv: []string{s.Probe, strings.Repeat("x", 2<<20)}}},
	} {
		t.Run(c.name, func(t *testing.T) { s.expectNotStarted(t, c.p, c.says) })
	}
	if s.Isolation {
		t.Run("NoSuchUser", func(t *testing.T) {
			s.expectNotStarted(t, sandbox.Process{Argv: []string{s.Probe, "exit", "0"}, User: "2000000000"}, "no group 2000000000")
		})
	}
}

func (s *suite) expectNotStarted(t *testing.T, p sandbox.Process, says string) {
	t.Helper()
	exit := s.run(t, p, sandbox.Sink{})
	expect(t, exit, sandbox.CauseNotStarted)
	if !strings.Contains(exit.Detail, says) {
		t.Errorf("detail %q does not say %q", exit.Detail, says)
	}
}

// testCancel: what the tool said before it was stopped is kept, and nothing is
// said after Run has returned.
func (s *suite) testCancel(t *testing.T) {
	sb := s.open(t)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	exit, err := sb.Run(ctx, s.probe("tree", "0", mark()), sandbox.Sink{Stderr: func([]byte) { cancel() }})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, exit, sandbox.CauseStopped)
	if string(exit.Stderr) != "leaf\n" {
		t.Errorf("stderr %q", exit.Stderr)
	}
	if sb.Reusable() {
		t.Error("it could be used after its call was killed")
	}
	if _, err := sb.Run(testContext(t), s.probe("exit", "0"), sandbox.Sink{}); err == nil {
		t.Error("a second run was accepted")
	}
}

func (s *suite) testDeadline(t *testing.T) {
	sb := s.open(t)
	ctx, cancel := context.WithTimeout(testContext(t), 200*time.Millisecond)
	defer cancel()
	exit, err := sb.Run(ctx, s.probe("stop"), sandbox.Sink{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, exit, sandbox.CauseStopped)
}

func (s *suite) testCancelBeforeStart(t *testing.T) {
	sb := s.open(t)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	exit, err := sb.Run(ctx, s.probe("exit", "0"), sandbox.Sink{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, exit, sandbox.CauseStopped)
	if !exit.Started.IsZero() {
		t.Error("it was started")
	}
}

// testHeld: the end of the tool is its end, whoever still holds its pipes.
func (s *suite) testHeld(t *testing.T) {
	sb := s.open(t)
	m := mark()
	exit, err := sb.Run(testContext(t), s.probe("hold", m), sandbox.Sink{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, exit, sandbox.CauseExited)
	if !exit.OutputHeld || string(exit.Stdout) != "said before the end" {
		t.Errorf("held %v, stdout %q", exit.OutputHeld, exit.Stdout)
	}
	closeSandbox(t, sb)
	if n := marked(t, m); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// testRemovedWhileIdle: a sandbox that dies while it waits is seen to be dead.
func (s *suite) testRemovedWhileIdle(t *testing.T) {
	id := NewID()
	ctx := testContext(t)
	sb, err := sandbox.Open(ctx, s.runtime, id, s.Spec)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSandbox(t, sb)
	if err := sb.Check(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.runtime.Remove(ctx, id); err != nil {
		t.Fatal(err)
	}
	if err := sb.Check(ctx); err == nil {
		t.Error("a removed sandbox answers")
	}
	exit, err := sb.Run(ctx, s.probe("exit", "0"), sandbox.Sink{})
	if err == nil || !exit.Started.IsZero() {
		t.Errorf("a removed sandbox ran a tool: %v", exit.Cause)
	}
}

// testRemovedWhileRunning: a call whose sandbox is taken away ends, with what it
// has said so far: by its agent, which is gone, or as lost, when the shim that
// it was the last of is seen to go as well.
func (s *suite) testRemovedWhileRunning(t *testing.T) {
	sb := s.open(t)
	ctx, m := testContext(t), mark()
	removed := make(chan error, 1)
	asked := false
	exit, err := sb.Run(ctx, s.probe("tree", "0", m), sandbox.Sink{Stderr: func([]byte) {
		asked = true
		// Not here: the sink must not wait for the end of its own stream.
		go func() { removed <- s.runtime.Remove(ctx, sb.ID()) }()
	}})
	if !asked {
		t.Fatalf("cause %q, stderr %q, error %v", exit.Cause, exit.Stderr, err)
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
	// Without a pid namespace the tool dies first, and its agent may just have
	// the time to say so.
	if !errors.Is(err, sandbox.ErrLost) && (err != nil || exit.Cause != sandbox.CauseProtocol && (s.Isolation || exit.Signal != "SIGKILL")) {
		t.Errorf("cause %q, signal %q, error %v", exit.Cause, exit.Signal, err)
	}
	if string(exit.Stderr) != "leaf\n" {
		t.Errorf("stderr %q", exit.Stderr)
	}
	if n := marked(t, m); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// mark is an argument by which a process of this test is found.
func mark() string { return "mark-" + rand.Text() }

// marked counts the processes of this host with the argument m.
func marked(t *testing.T, m string) int {
	t.Helper()
	return len(withMark(t, m))
}

// withMark lists the processes of this host with the argument m, as their
// directories in /proc.
func withMark(t *testing.T, m string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && slices.Contains(strings.Split(string(b), "\x00"), m) {
			dirs = append(dirs, filepath.Dir(f))
		}
	}
	return dirs
}
