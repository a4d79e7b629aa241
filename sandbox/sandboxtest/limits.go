package sandboxtest

import (
	"context"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
)

// testLimits: each limit holds, and is told by its name.
func (s *suite) testLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string
		cause sandbox.Cause
	}{
		{"Memory", []string{"eat"}, sandbox.CauseOutOfMemory},
		{"ForkBomb", []string{"forks", "on", mark()}, sandbox.CausePidsLimit},
		{"TooManyForks", []string{"forks", "once", mark()}, sandbox.CausePidsLimit},
		{"DiskBytes", []string{"fill", "/tmp", "1000000"}, sandbox.CauseDiskLimit},
		{"DiskInodes", []string{"fill", "/workspace", "0"}, sandbox.CauseDiskLimit},
		{"DiskHome", []string{"fill", "/home/tool", "100000"}, sandbox.CauseDiskLimit},
	} {
		t.Run(c.name, func(t *testing.T) {
			sb := s.open(t)
			exit, err := sb.Run(testContext(t), s.probe(c.args...), sandbox.Sink{})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, exit, c.cause)
			if n := marked(t, c.args[len(c.args)-1]); c.cause == sandbox.CausePidsLimit && exit.Signal == "" && n > 64 {
				t.Errorf("%d processes", n)
			}
		})
	}
	t.Run("OwnSIGKILLIsNotMemory", func(t *testing.T) {
		expect(t, s.run(t, s.probe("signal", "9"), sandbox.Sink{}), sandbox.CauseSignaled)
	})
	t.Run("StopIsNotMemory", func(t *testing.T) {
		sb := s.open(t)
		ctx, cancel := context.WithCancel(testContext(t))
		defer cancel()
		exit, err := sb.Run(ctx, s.probe("tree", "0", mark()), sandbox.Sink{Stderr: func([]byte) { cancel() }})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, exit, sandbox.CauseStopped)
	})
}
