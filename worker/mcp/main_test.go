package mcp_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/local"
	"github.com/toolfleet/toolfleet/sandbox/sandboxtest"
	"github.com/toolfleet/toolfleet/worker/mcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench runs servers: real processes behind a real agent.
type bench struct {
	runtime *local.Runtime
	server  string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	rt, err := local.New(local.Config{Agent: sandboxtest.BuildAgent(t), Dir: sandboxtest.PublicDir(t), Owner: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(sandboxtest.PublicDir(t), "testserver")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", server, "./testserver")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return &bench{rt, server}
}

// process is a server in a mode.
func (b *bench) process(args ...string) sandbox.Process {
	return sandbox.Process{Argv: append([]string{b.server}, args...), Stdin: []byte(`{"n":1}`)}
}

// run returns a runner in a sandbox of its own.
func (b *bench) run(t *testing.T) mcp.Runner {
	t.Helper()
	sb, err := sandbox.Open(t.Context(), b.runtime, sandboxtest.NewID(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := sb.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return sb.Run
}

// updates gathers what a sink is told.
type updates struct {
	mu   sync.Mutex // guards said
	said []string
}

func (u *updates) sink() sandbox.Sink {
	return sandbox.Sink{Update: func(m []byte) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.said = append(u.said, string(m))
	}}
}
