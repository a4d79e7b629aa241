package sandboxtest

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/wire"
)

// secretsSeen is what the probe's mode "secrets" prints.
type secretsSeen struct {
	Env          string
	Files, Modes map[string]string
	Mount        string
	Allowed      []string
}

// testSecrets: secret files are on a tmpfs that the host does not have in any
// directory, only the tool's user reads them, and they are gone with the call.
func (s *suite) testSecrets(t *testing.T) {
	if !s.Isolation {
		t.Run("NoPlace", s.testNoPlace)
		return
	}
	for user, owner := range map[string]string{"": "65532:65532", "1234:5678": "1234:5678", "0:0": "0:0"} {
		t.Run("Pain92User"+user, func(t *testing.T) {
			spec := s.Spec
			spec.Secrets = spec.Isolation != "cell"
			sb := s.openSpec(t, spec)
			p := s.probe("secrets", wire.DirSecrets)
			long := strings.Repeat("0123456789abcdef", 2<<10)
			p.User, p.Env = user, []string{"SECRET=from the environment"}
			p.Secrets = []sandbox.SecretFile{{Name: "key.pem", Data: []byte(long)}, {Name: "token", Data: []byte("\x00\xff\n")}}
			seen := s.secretsSeen(t, sb, p)
			if diff := cmp.Diff(map[string]string{"key.pem": long, "token": "\x00\uFFFD\n"}, seen.Files); diff != "" {
				t.Errorf("files, -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{"key.pem": "400 " + owner, "token": "400 " + owner}, seen.Modes); diff != "" {
				t.Errorf("modes, -want +got:\n%s", diff)
			}
			if seen.Env != "from the environment" || len(seen.Allowed) > 0 {
				t.Errorf("environment %q, and it may %q", seen.Env, seen.Allowed)
			}
			for _, want := range []string{"tmpfs ", "noexec", "nosuid", "nodev"} {
				// gVisor shows none of the last two, and keeps them.
				if !strings.Contains(seen.Mount, want) && (s.OwnKernel == "" || want == "tmpfs ") {
					t.Errorf("mounted as %q, not %s", seen.Mount, want)
				}
			}
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(mounts, []byte(" "+wire.DirSecrets+" ")) {
				t.Error("the host has them mounted, too")
			}
			if s.Spec.Isolation != "cell" {
				return
			}
			next := s.secretsSeen(t, sb, s.probe("secrets", wire.DirSecrets))
			if len(next.Files) > 0 || next.Mount != "" || next.Env != "" {
				t.Errorf("the next call sees %+v", next)
			}
		})
	}
}

// testNoPlace: secret files have nowhere to go where the tool's files are the
// host's, and nothing is run without them.
func (s *suite) testNoPlace(t *testing.T) {
	p := s.probe("exit", "0")
	p.Secrets = []sandbox.SecretFile{{Name: "token", Data: []byte("12345678")}}
	if exit, err := s.open(t).Run(testContext(t), p, sandbox.Sink{}); err == nil || !exit.Started.IsZero() {
		t.Errorf("cause %q, error %v", exit.Cause, err)
	}
	if _, err := os.Lstat(wire.DirSecrets + "/token"); err == nil {
		t.Error("a file of the host")
	}
}

// secretsSeen runs the probe, which looks at its secrets.
func (s *suite) secretsSeen(t *testing.T, sb *sandbox.Sandbox, p sandbox.Process) secretsSeen {
	t.Helper()
	exit, err := sb.Run(testContext(t), p, sandbox.Sink{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, exit, sandbox.CauseExited)
	var seen secretsSeen
	if err := json.Unmarshal(exit.Stdout, &seen); err != nil {
		t.Fatalf("%v: %q, %q", err, exit.Stdout, exit.Stderr)
	}
	return seen
}
