package containerd_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/image"
)

// What all tests of the package share: one daemon, and a small program that
// stands in for the agent.
var (
	binDir string
	daemon *containerd.Daemon
	shell  string
)

const testImage = "local/test:1"

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	binDir, err = filepath.Abs("../../.toolchain/bin")
	if err != nil {
		return 1, err
	}
	switch {
	case os.Getenv(victimEnv) != "":
		return 1, victim(os.Getenv(victimEnv))
	case os.Getenv(fleetEnv) != "":
		return 1, fleet(os.Getenv(fleetEnv))
	}
	if _, err := os.Stat(filepath.Join(binDir, "containerd")); err != nil {
		return 1, fmt.Errorf("these tests need containerd; run make setup: %w", err)
	}
	dir, err := os.MkdirTemp("/var/tmp", "toolfleet-test-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if shell, err = build(ctx, dir, "./testdata/shell"); err != nil {
		return 1, err
	}
	daemon, err = containerd.StartDaemon(ctx, containerd.DaemonConfig{BinDir: binDir, StateDir: filepath.Join(dir, "state")})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := daemon.Stop(ctx); stopErr != nil && err == nil {
			code, err = 1, stopErr
		}
	}()
	return m.Run(), nil
}

// build compiles a main package to a static binary below dir.
func build(ctx context.Context, dir, pkg string) (string, error) {
	out := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, msg)
	}
	return out, nil
}

// open returns a runtime of the given owner whose agent is a shell, and imports
// the test image.
func open(tb testing.TB, owner string) *containerd.Runtime {
	tb.Helper()
	rt := openWith(tb, owner, shell)
	importTestImage(tb, rt)
	return rt
}

func openWith(tb testing.TB, owner, agent string) *containerd.Runtime {
	tb.Helper()
	rt, err := containerd.New(containerd.Config{Address: daemon.Address(), Owner: owner, AgentPath: agent, BinDir: binDir})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := rt.Close(); err != nil {
			tb.Error(err)
		}
	})
	return rt
}

func importTestImage(tb testing.TB, rt *containerd.Runtime) {
	tb.Helper()
	if _, err := rt.Import(tb.Context(), testArchive(tb)); err != nil {
		tb.Fatal(err)
	}
}

// testArchive is an archive of the test image: a static busybox.
func testArchive(tb testing.TB) io.Reader {
	tb.Helper()
	img, err := image.Recipe{Add: []string{"/bin/busybox:/bin/busybox"}, Link: []string{"/bin/sh=busybox"}}.Build(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	var archive bytes.Buffer
	if err := image.WriteArchive(&archive, testImage, img); err != nil {
		tb.Fatal(err)
	}
	return &archive
}

// endCtx bounds a clean-up.
func endCtx(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	tb.Cleanup(cancel)
	return ctx
}
