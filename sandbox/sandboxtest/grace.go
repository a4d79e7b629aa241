package sandboxtest

import (
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// testGrace: a tool that asked for it is told before it is killed. What it says
// then is kept, and it has been stopped all the same.
func (s *suite) testGrace(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string
		grace time.Duration
		want  sandbox.Exit
	}{
		{"Heard", []string{"graceful", "0"}, time.Minute, sandbox.Exit{Stdout: []byte("begun, and put away")}},
		{"HeardWithCode", []string{"graceful", "7"}, time.Minute, sandbox.Exit{Stdout: []byte("begun, and put away"), Code: 7}},
		{"Obeyed", []string{"tree", "0"}, time.Minute, sandbox.Exit{Signal: "SIGTERM", KilledBy: sandbox.KilledByFleet}},
		{"Ignored", []string{"deaf"}, 300 * time.Millisecond, sandbox.Exit{Signal: "SIGKILL", KilledBy: sandbox.KilledByFleet}},
		{"NotRunning", []string{"stopped"}, 300 * time.Millisecond, sandbox.Exit{Signal: "SIGKILL", KilledBy: sandbox.KilledByFleet}},
		{"NotAskedFor", []string{"tree", "0"}, 0, sandbox.Exit{Signal: "SIGKILL", KilledBy: sandbox.KilledByFleet}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mark()
			p := s.probe(append(c.args, m)...)
			p.Grace = c.grace
			exit := s.stopAt(t, p, 1, nil)
			expect(t, exit, sandbox.CauseStopped)
			if string(exit.Stdout) != string(c.want.Stdout) || exit.Code != c.want.Code || exit.Signal != c.want.Signal || exit.KilledBy != c.want.KilledBy {
				t.Errorf("stdout %q, code %d, signal %q by %q, want %q, %d, %q by %q",
					exit.Stdout, exit.Code, exit.Signal, exit.KilledBy, c.want.Stdout, c.want.Code, c.want.Signal, c.want.KilledBy)
			}
			if n := marked(t, m); n != 0 {
				t.Errorf("%d processes are left", n)
			}
		})
	}
}
