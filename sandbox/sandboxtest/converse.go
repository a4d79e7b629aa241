package sandboxtest

import (
	"bytes"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// testConversation: a tool may be spoken to while it runs.
func (s *suite) testConversation(t *testing.T) {
	t.Run("QuestionAndAnswer", s.testQuestions)
	t.Run("MoreThanTheWindow", s.testBigInput)
	t.Run("FinishedAndStillThere", s.testFinished)
	t.Run("InputLeftOpen", s.testOpenInput)
	t.Run("OutputLimit", s.testConversationLimit)
}

// conversation starts p with an input, and a channel of what it says.
func (s *suite) conversation(t *testing.T, sb *sandbox.Sandbox, p sandbox.Process) (input chan<- []byte, said <-chan string, exit func() sandbox.Exit) {
	t.Helper()
	in, out, ended := make(chan []byte), make(chan string, 1024), make(chan sandbox.Exit, 1)
	p.Input = in
	ctx := testContext(t)
	go func() {
		e, err := sb.Run(ctx, p, sandbox.Sink{Stdout: func(b []byte) { out <- string(b) }})
		if err != nil {
			t.Error(err)
		}
		ended <- e
	}()
	return in, out, func() sandbox.Exit { return <-ended }
}

// testQuestions: each answer comes while the input is open, and the end of the
// input is the end of stdin.
func (s *suite) testQuestions(t *testing.T) {
	p := s.probe("cat")
	p.Stdin = []byte("first ")
	input, said, exit := s.conversation(t, s.open(t), p)
	got := ""
	hear := func(want string) {
		for len(got) < len(want) {
			got += <-said
		}
	}
	hear("first ")
	input <- []byte("second ")
	hear("first second ")
	input <- []byte("third")
	hear("first second third")
	close(input)
	e := exit()
	expect(t, e, sandbox.CauseExited)
	if got != "first second third" || e.Code != 0 || e.Stdout != nil || e.StdoutBytes != int64(len(got)) {
		t.Errorf("it said %q; code %d, %q, %d bytes", got, e.Code, e.Stdout, e.StdoutBytes)
	}
}

func (s *suite) testBigInput(t *testing.T) {
	p := s.probe("cat")
	p.OutputLimit = 2 << 20
	input, said, exit := s.conversation(t, s.open(t), p)
	whole := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	input <- whole
	var got bytes.Buffer
	for got.Len() < len(whole) {
		got.WriteString(<-said)
	}
	close(input)
	e := exit()
	expect(t, e, sandbox.CauseExited)
	if !bytes.Equal(got.Bytes(), whole) {
		t.Errorf("%d bytes came back, or other ones", got.Len())
	}
}

// testFinished: what is left of a tool whose input has ended is killed after a
// while. It is no anomaly: a container of cells serves the next call.
func (s *suite) testFinished(t *testing.T) {
	sb := s.open(t)
	p := s.probe("stop")
	p.Linger = 50 * time.Millisecond
	input, _, exit := s.conversation(t, sb, p)
	close(input)
	e := exit()
	expect(t, e, sandbox.CauseFinished)
	if e.KilledBy != sandbox.KilledByFleet || e.Signal != "SIGKILL" {
		t.Errorf("killed by %q with %q", e.KilledBy, e.Signal)
	}
	if s.Spec.Isolation != "cell" {
		return
	}
	if !sb.Reusable() {
		t.Fatal("not reusable")
	}
	p = s.probe("cat")
	p.Stdin = []byte("next")
	if e := s.next(t, sb, p); e.Cause != sandbox.CauseExited || string(e.Stdout) != "next" {
		t.Errorf("the next call: %q, %q", e.Cause, e.Stdout)
	}
}

// testOpenInput: a tool that ends does so whether its input has ended or not.
func (s *suite) testOpenInput(t *testing.T) {
	_, _, exit := s.conversation(t, s.open(t), s.probe("exit", "3"))
	if e := exit(); e.Cause != sandbox.CauseExited || e.Code != 3 {
		t.Errorf("cause %q, code %d", e.Cause, e.Code)
	}
}

func (s *suite) testConversationLimit(t *testing.T) {
	p := s.probe("flood", "1000000000")
	p.OutputLimit = 1 << 20
	_, said, exit := s.conversation(t, s.open(t), p)
	e := exit()
	expect(t, e, sandbox.CauseOutputLimit)
	n := 0
	for len(said) > 0 {
		n += len(<-said)
	}
	if n != 1<<20 || len(e.Truncated) != 1 || e.Truncated[0] != "stdout" {
		t.Errorf("%d bytes, truncated %v", n, e.Truncated)
	}
}
