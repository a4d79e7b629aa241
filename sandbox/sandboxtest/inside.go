package sandboxtest

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/sandbox"
)

// report is what the probe's mode "report" prints.
type report struct {
	Env          []string
	Dir          string
	UID, GID     int
	Groups       []int
	PID, SID     int
	Status       map[string]string
	OOMScoreAdj  string
	Files        []string
	Core, NoFile uint64
}

func (s *suite) report(t *testing.T, change func(*sandbox.Process)) report {
	t.Helper()
	p := s.probe("report")
	change(&p)
	exit := s.run(t, p, sandbox.Sink{})
	expect(t, exit, sandbox.CauseExited)
	var r report
	if err := json.Unmarshal(exit.Stdout, &r); err != nil {
		t.Fatalf("%v: %q, %q", err, exit.Stdout, exit.Stderr)
	}
	return r
}

// testEnvironment: the tool finds what was asked for, and sensible defaults.
func (s *suite) testEnvironment(t *testing.T) {
	t.Run("AsAsked", func(t *testing.T) {
		user := strconv.Itoa(os.Getuid()) + ":" + strconv.Itoa(os.Getgid())
		if os.Getuid() == 0 {
			user = "1234:5678"
		}
		r := s.report(t, func(p *sandbox.Process) {
			p.Env = []string{"HOME=/elsewhere", "A=1", "A=2"}
			p.Dir, p.User = "/proc", user
		})
		if r.Dir != "/proc" || strconv.Itoa(r.UID)+":"+strconv.Itoa(r.GID) != user {
			t.Errorf("in %s as %d:%d", r.Dir, r.UID, r.GID)
		}
		for _, want := range []string{"HOME=/elsewhere", "A=2", "TOOLFLEET_FD=3"} {
			if !slices.Contains(r.Env, want) {
				t.Errorf("no %s in %q", want, r.Env)
			}
		}
	})
	t.Run("Defaults", func(t *testing.T) {
		r := s.report(t, func(*sandbox.Process) {})
		if os.Getuid() == 0 && (r.UID != 65532 || r.GID != 65532 || len(slices.DeleteFunc(r.Groups, func(g int) bool { return g == r.GID })) != 0) {
			t.Errorf("as %d:%d with groups %v", r.UID, r.GID, r.Groups)
		}
		for _, name := range []string{"PATH=", "HOME=", "TMPDIR="} {
			if !slices.ContainsFunc(r.Env, func(kv string) bool { return strings.HasPrefix(kv, name) && kv != name }) {
				t.Errorf("no %s in %q", name, r.Env)
			}
		}
		if s.Isolation && r.Dir != "/workspace" {
			t.Errorf("in %s", r.Dir)
		}
	})
	t.Run("Pain95WritablePlaces", func(t *testing.T) {
		for _, name := range []string{"HOME", "TMPDIR", "PWD"} {
			for _, user := range []string{"", "1234:5678", "0:0"} {
				p := s.probe("write", name)
				if os.Getuid() == 0 {
					p.User = user
				}
				exit := s.run(t, p, sandbox.Sink{})
				expect(t, exit, sandbox.CauseExited)
				if exit.Code != 0 {
					t.Errorf("%s, user %q: %s", name, user, exit.Stderr)
				}
			}
		}
	})
}

// testSecurity: the tool has no privileges and cannot get any.
func (s *suite) testSecurity(t *testing.T) {
	t.Run("LockDown", func(t *testing.T) {
		r := s.report(t, func(*sandbox.Process) {})
		none := "0000000000000000"
		want := map[string]string{"NoNewPrivs": "1", "CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none}
		if os.Getuid() == 0 {
			want["CapBnd"] = none
		}
		if s.Isolation {
			want["Seccomp"] = "2"
		}
		for name, v := range want {
			if r.Status[name] != v {
				t.Errorf("%s is %q, want %q", name, r.Status[name], v)
			}
		}
		if r.SID != r.PID {
			t.Errorf("process %d is in session %d", r.PID, r.SID)
		}
		if r.OOMScoreAdj != "1000" || r.Core != 0 || r.NoFile > 4096 {
			t.Errorf("out-of-memory score %s, core limit %d, file limit %d", r.OOMScoreAdj, r.Core, r.NoFile)
		}
		inherited := slices.DeleteFunc(r.Files, func(f string) bool {
			// The probe's own: the Go runtime's cgroup limits and poller.
			return strings.Contains(f, " /sys/fs/cgroup/") || strings.HasSuffix(f, " anon_inode")
		})
		if want := []string{"0 pipe", "1 pipe", "2 pipe", "3 pipe"}; !slices.Equal(inherited, want) {
			t.Errorf("open files %q, want %q", inherited, want)
		}
	})
	t.Run("Attack", func(t *testing.T) {
		exit := s.run(t, s.probe("attack"), sandbox.Sink{})
		if os.Getuid() != 0 {
			// Agent and tool share one user, so the tool can end its agent.
			// That must not look like a failure of ours.
			expect(t, exit, sandbox.CauseProtocol)
			return
		}
		expect(t, exit, sandbox.CauseExited)
		could := strings.Split(strings.TrimSpace(string(exit.Stdout)), "\n")
		could = slices.DeleteFunc(could, func(what string) bool {
			// Without a filter the kernel of this host decides.
			return what == "" || !s.Isolation && strings.HasPrefix(what, "make a user namespace") ||
				s.OwnKernel != "" && what == "hide from the out-of-memory killer"
		})
		if len(could) != 0 {
			t.Errorf("the tool could %s", strings.Join(could, ", "))
		}
	})
	if os.Getuid() == 0 {
		t.Run("AttackAsRoot", func(t *testing.T) {
			p := s.probe("attack")
			p.User = "0:0"
			exit := s.run(t, p, sandbox.Sink{})
			t.Logf("the tool could %q", exit.Stdout)
			switch {
			case s.OwnKernel != "" && s.Spec.Isolation == "cell":
				// It ends the init of its own cell and so itself, unless it has
				// ended before that kernel gets to it.
				if exit.Cause != sandbox.CauseExited {
					expect(t, exit, sandbox.CauseSignaled)
				}
			case s.OwnKernel != "":
				expect(t, exit, sandbox.CauseProtocol)
			case s.Isolation:
				expect(t, exit, sandbox.CauseExited)
			}
		})
	}
}
