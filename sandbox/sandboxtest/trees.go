package sandboxtest

import (
	"bytes"
	"context"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
)

// testTrees: whatever a tool does to be hard to end, a stop ends all of it.
func (s *suite) testTrees(t *testing.T) {
	type tree struct {
		name string
		args []string
	}
	trees := []tree{
		{"Pain28Sessions", []string{"tree", "3"}},
		{"Stopped", []string{"stopped"}},
		{"Vforked", []string{"vforked"}},
		{"Traced", []string{"traced"}},
		{"Deaf", []string{"deaf"}},
	}
	if s.Isolation {
		// Only a namespace or a cgroup ends what is never there to be killed.
		trees = append(trees, tree{"Reforker", []string{"refork", "start"}})
	}
	for _, c := range trees {
		t.Run(c.name, func(t *testing.T) {
			m := mark()
			leaves := 1
			if c.args[0] == "tree" {
				leaves = 8
			}
			exit := s.stopAt(t, s.probe(append(c.args, m)...), leaves, func() {
				if n := marked(t, m); n == 0 && s.OwnKernel == "" {
					t.Error("no process is seen from here")
				}
			})
			expect(t, exit, sandbox.CauseStopped)
			if n := marked(t, m); n != 0 {
				t.Errorf("%d processes are left", n)
			}
		})
	}
}

// stopAt runs p in a sandbox of its own and stops it when it has said so many
// lines to stderr. Before the stop it calls then, if there is one. An end that
// comes earlier is an end too.
func (s *suite) stopAt(t *testing.T, p sandbox.Process, lines int, then func()) sandbox.Exit {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	said := make(chan struct{})
	seen := 0
	type end struct {
		exit sandbox.Exit
		err  error
	}
	ended := make(chan end, 1)
	sb := s.open(t)
	go func() {
		exit, err := sb.Run(ctx, p, sandbox.Sink{Stderr: func(b []byte) {
			had := seen
			if seen += bytes.Count(b, []byte("\n")); had < lines && seen >= lines {
				close(said)
			}
		}})
		ended <- end{exit, err}
	}()
	select {
	case <-said:
		if then != nil {
			then()
		}
	case e := <-ended:
		ended <- e
	}
	cancel()
	e := <-ended
	if e.err != nil {
		t.Fatal(e.err)
	}
	return e.exit
}
