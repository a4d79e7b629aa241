package sandboxtest

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
)

// testStreams: what goes in and comes out arrives whole, in order, and bounded.
func (s *suite) testStreams(t *testing.T) {
	t.Run("StdoutStderrAndMessages", s.testVoices)
	t.Run("StdinOfOneMebibyte", s.testBigStdin)
	t.Run("StdinThatNobodyReads", s.testUnreadStdin)
	t.Run("StdinThatIsClosed", s.testClosedStdin)
	t.Run("EveryByteValue", s.testAllBytes)
	t.Run("OutputBeforeExit", s.testOrder)
	t.Run("Pain36OutputLimit", s.testOutputLimit)
	t.Run("StderrHeadAndTail", s.testStderr)
	t.Run("ReopenedStdout", s.testReopen)
	t.Run("BadMessages", s.testBadMessages)
}

func (s *suite) testVoices(t *testing.T) {
	var progress, updates []string
	exit := s.run(t, s.probe("say", "oout", "eone", `m{"type":"update","n":1}`, "m", `m{"type":"update","n":2}`,
		`m{"type":"result","n":3}`, `m{"type":"result","n":4}`, "otwo"), sandbox.Sink{
		Stderr: func(b []byte) { progress = append(progress, string(b)) },
		Update: func(b []byte) { updates = append(updates, string(b)) },
	})
	expect(t, exit, sandbox.CauseExited)
	if exit.Code != 0 || string(exit.Stdout) != "outtwo" || string(exit.Stderr) != "one" || strings.Join(progress, "") != "one" {
		t.Errorf("code %d, stdout %q, stderr %q, progress %q", exit.Code, exit.Stdout, exit.Stderr, progress)
	}
	if got := strings.Join(updates, " "); got != `{"type":"update","n":1} {"type":"update","n":2}` {
		t.Errorf("updates %s", got)
	}
	if string(exit.Result) != `{"type":"result","n":3}` || exit.ExtraResults != 1 {
		t.Errorf("result %s and %d more", exit.Result, exit.ExtraResults)
	}
}

func (s *suite) testBigStdin(t *testing.T) {
	p := s.probe("cat")
	p.Stdin = bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	p.OutputLimit = 2 << 20
	exit := s.run(t, p, sandbox.Sink{})
	expect(t, exit, sandbox.CauseExited)
	if !bytes.Equal(exit.Stdout, p.Stdin) {
		t.Errorf("%d bytes came back, or other ones", len(exit.Stdout))
	}
}

func (s *suite) testUnreadStdin(t *testing.T) {
	p := s.probe("exit", "0")
	p.Stdin = make([]byte, 1<<20)
	exit := s.run(t, p, sandbox.Sink{})
	expect(t, exit, sandbox.CauseExited)
	if exit.Code != 0 {
		t.Errorf("code %d", exit.Code)
	}
}

func (s *suite) testClosedStdin(t *testing.T) {
	p := s.probe("close-stdin")
	p.Stdin = make([]byte, 1<<20)
	exit := s.run(t, p, sandbox.Sink{})
	expect(t, exit, sandbox.CauseExited)
	if exit.Code != 0 || len(exit.Stdout) != 500000 {
		t.Errorf("code %d, %d bytes", exit.Code, len(exit.Stdout))
	}
}

func (s *suite) testAllBytes(t *testing.T) {
	exit := s.run(t, s.probe("bytes"), sandbox.Sink{})
	expect(t, exit, sandbox.CauseExited)
	for i, b := range exit.Stdout {
		if int(b) != i {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	if len(exit.Stdout) != 256 {
		t.Errorf("%d bytes", len(exit.Stdout))
	}
}

// testOrder: nothing that was written before the exit is missing after it.
func (s *suite) testOrder(t *testing.T) {
	p := s.probe("flood", "1000000", "60000")
	exit := s.run(t, p, sandbox.Sink{})
	expect(t, exit, sandbox.CauseExited)
	if len(exit.Stdout) != 1000000 || len(exit.Stderr) != 60000 || len(exit.Truncated) != 0 {
		t.Errorf("%d bytes of stdout, %d of stderr, truncated %v", len(exit.Stdout), len(exit.Stderr), exit.Truncated)
	}
}

// testOutputLimit: a tool that never stops writing is ended, its head is kept,
// and this process has not held the rest.
func (s *suite) testOutputLimit(t *testing.T) {
	sb := s.open(t)
	p := s.probe("flood", "1000000000")
	p.OutputLimit = 1 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	exit, err := sb.Run(testContext(t), p, sandbox.Sink{})
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, exit, sandbox.CauseOutputLimit)
	if len(exit.Stdout) != 1<<20 || len(exit.Truncated) != 1 || exit.Truncated[0] != "stdout" {
		t.Errorf("%d bytes, truncated %v", len(exit.Stdout), exit.Truncated)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("%d bytes were allocated for it", used)
	}
}

func (s *suite) testStderr(t *testing.T) {
	var seen int
	exit := s.run(t, s.probe("flood", "0", "10000000"), sandbox.Sink{Stderr: func(b []byte) { seen += len(b) }})
	expect(t, exit, sandbox.CauseExited)
	if seen != 10000000 || len(exit.Stderr) > 64<<10 || !bytes.Contains(exit.Stderr, []byte("bytes left out")) {
		t.Errorf("%d bytes seen, %d kept", seen, len(exit.Stderr))
	}
}

func (s *suite) testReopen(t *testing.T) {
	exit := s.run(t, s.probe("reopen"), sandbox.Sink{})
	expect(t, exit, sandbox.CauseExited)
	if string(exit.Stdout) != "reopened" {
		t.Errorf("stdout %q, stderr %q", exit.Stdout, exit.Stderr)
	}
}

func (s *suite) testBadMessages(t *testing.T) {
	for name, p := range map[string]sandbox.Process{
		"NotJSON":     s.probe("message", "junk\n"),
		"OtherType":   s.probe("message", `{"type":"surprise"}`+"\n"),
		"LineTooLong": s.probe("long-line"),
	} {
		t.Run(name, func(t *testing.T) {
			exit := s.run(t, p, sandbox.Sink{})
			expect(t, exit, sandbox.CauseProtocol)
			if !strings.Contains(exit.Detail, "fd 3") {
				t.Errorf("detail %q", exit.Detail)
			}
		})
	}
	t.Run("NoNewlineAtTheEnd", func(t *testing.T) {
		exit := s.run(t, s.probe("message", `{"type":"result"}`), sandbox.Sink{})
		expect(t, exit, sandbox.CauseExited)
		if string(exit.Result) != `{"type":"result"}` {
			t.Errorf("result %q", exit.Result)
		}
	})
}
