// Package sandboxtest is what every sandbox runtime must do, as tests. A
// runtime calls [Run] from a test of its own; so the contract of package
// sandbox is checked in one place, and a runtime that passes it can take the
// place of another.
//
// The tests speak to a runtime through [sandbox.Open] and the tool "probe",
// whose source is beside this file. It runs as the sandbox's one tool and does
// what tools do, the bad ones too.
package sandboxtest

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/sandbox"
)

// Config says what is tested, and what may be expected of it.
type Config struct {
	// Open returns the runtime. It is called once; it cleans up with
	// t.Cleanup.
	Open func(t *testing.T) sandbox.Runtime
	// Probe is the path of the probe inside a sandbox.
	Probe string
	// Spec is the spec of every sandbox. A runtime with Limits has a spec with
	// at most 256 MiB of memory, 64 MiB of disk and 64 processes.
	Spec sandbox.Spec
	// Limits says that the runtime enforces limits and counts what they did.
	Limits bool
	// Isolation says that the runtime keeps the tool from the host, and not
	// only its privileges from the tool.
	Isolation bool
	// OwnKernel says why the tool's kernel is not the host's, where it is not;
	// empty where it is. Then the host sees none of the tool's processes, their
	// score for the host's out-of-memory killer has no effect, and user 0 can
	// end process 1 of its pid namespace, which Linux forbids.
	OwnKernel string
	// Overhead is the memory in bytes that the runtime takes for itself beside
	// the tool's limits.
	Overhead int64
}

// Bounds of one test, and of one clean-up.
const (
	testTimeout  = 2 * time.Minute
	closeTimeout = time.Minute
)

// Run runs the whole suite.
func Run(t *testing.T, cfg Config) {
	s := &suite{Config: cfg}
	s.runtime = cfg.Open(t)
	t.Run("Life", s.testLife)
	t.Run("Streams", s.testStreams)
	t.Run("Conversation", s.testConversation)
	t.Run("Pain54Ends", s.testEnds)
	t.Run("Trees", s.testTrees)
	t.Run("FilesIn", s.testFilesIn)
	t.Run("FilesOut", s.testFilesOut)
	t.Run("Grace", s.testGrace)
	t.Run("Pain4DeadBeforeTheKill", s.testDead)
	t.Run("ExitOrder", s.testExitOrder)
	t.Run("Environment", s.testEnvironment)
	t.Run("Secrets", s.testSecrets)
	t.Run("Security", s.testSecurity)
	if cfg.Isolation {
		t.Run("Listeners", s.testListeners)
	}
	if cfg.Limits {
		t.Run("Limits", s.testLimits)
	}
	if cfg.Spec.Isolation == "cell" {
		t.Run("Cells", s.testCells)
	}
	t.Run("NothingLeft", s.testNothingLeft)
}

// suite is one run of the tests.
type suite struct {
	Config
	runtime sandbox.Runtime
}

// NewID returns an id for a sandbox that no other has.
func NewID() string { return "test-" + strings.ToLower(rand.Text()[:12]) }

// open starts a sandbox that ends with the test.
func (s *suite) open(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	return s.openSpec(t, s.Spec)
}

func (s *suite) openSpec(t *testing.T, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	sb, err := sandbox.Open(testContext(t), s.runtime, NewID(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSandbox(t, sb) })
	return sb
}

func closeSandbox(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), closeTimeout)
	defer cancel()
	if err := sb.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// testContext is the context of one test.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// probe is the process that runs the probe in a mode.
func (s *suite) probe(args ...string) sandbox.Process {
	return sandbox.Process{Argv: append([]string{s.Probe}, args...)}
}

// run runs p in a sandbox of its own and expects it to be told without error.
func (s *suite) run(t *testing.T, p sandbox.Process, sink sandbox.Sink) sandbox.Exit {
	t.Helper()
	exit, err := s.open(t).Run(testContext(t), p, sink)
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

// expect fails when exit has another cause.
func expect(t *testing.T, exit sandbox.Exit, cause sandbox.Cause) {
	t.Helper()
	if exit.Cause != cause {
		t.Fatalf("cause %q (code %d, signal %q, detail %q, stderr %q), want %q",
			exit.Cause, exit.Code, exit.Signal, exit.Detail, exit.Stderr, cause)
	}
}

// BuildAgent builds cmd/agent as it is installed and returns its path.
func BuildAgent(t testing.TB) string { return build(t, "cmd/agent", "agent") }

// BuildProbe builds the probe and returns its path on the host.
func BuildProbe(t testing.TB) string { return build(t, "sandbox/sandboxtest/probe", "probe") }

// build builds one package of this module into a directory that every user can
// get to, since tools have a user of their own.
func build(t testing.TB, pkg, name string) string {
	t.Helper()
	path := filepath.Join(PublicDir(t), name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path,
		"github.com/toolfleet/toolfleet/"+pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// PublicDir is t.TempDir for things that a tool with another user must get to.
func PublicDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
