package local_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/local"
	"github.com/toolfleet/toolfleet/sandbox/sandboxtest"
)

// hostVariable makes the test binary a worker that a test can kill.
const hostVariable = "TOOLFLEET_TEST_HOST"

func TestMain(m *testing.M) {
	if args := os.Getenv(hostVariable); args != "" {
		if err := host(strings.Split(args, " ")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func open(cfg local.Config) func(t *testing.T) sandbox.Runtime {
	return func(t *testing.T) sandbox.Runtime {
		cfg.Agent, cfg.Dir, cfg.Owner = sandboxtest.BuildAgent(t), sandboxtest.PublicDir(t), "tester"
		rt, err := local.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return rt
	}
}

func TestSuite(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Config{Open: open(local.Config{}), Probe: sandboxtest.BuildProbe(t)})
}

func TestSuiteWithoutPIDNamespace(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Config{Open: open(local.Config{NoPIDNamespace: true}), Probe: sandboxtest.BuildProbe(t)})
}

// TestHostKilled: when a worker is killed, its tools end by themselves, and what
// it left on disk is found and removed by the next one.
func TestHostKilled(t *testing.T) {
	for _, ns := range []string{"ns", "plain"} {
		t.Run(ns, func(t *testing.T) {
			agent, probe, dir := sandboxtest.BuildAgent(t), sandboxtest.BuildProbe(t), sandboxtest.PublicDir(t)
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), hostVariable+"="+strings.Join([]string{ns, agent, probe, dir}, " "))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatalf("the host said %q, %v", line, err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			waitGone(t, dir)

			rt, err := local.New(local.Config{Agent: agent, Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			list, err := rt.List(t.Context())
			if err != nil || len(list) != 1 || list[0].ID != "lost" || list[0].Owner != "killed" {
				t.Fatalf("list %+v, %v", list, err)
			}
			if err := rt.Remove(t.Context(), "lost"); err != nil {
				t.Fatal(err)
			}
			if err := rt.Remove(t.Context(), "lost"); !errors.Is(err, sandbox.ErrNotFound) {
				t.Errorf("removed again: %v", err)
			}
		})
	}
}

// host is a worker that runs a tree of processes until it is killed.
func host(args []string) error {
	ns, agent, probe, dir := args[0], args[1], args[2], args[3]
	rt, err := local.New(local.Config{Agent: agent, Dir: dir, Owner: "killed", NoPIDNamespace: ns == "plain"})
	if err != nil {
		return err
	}
	ctx := context.Background()
	sb, err := sandbox.Open(ctx, rt, "lost", sandbox.Spec{})
	if err != nil {
		return err
	}
	leaves := 0
	_, err = sb.Run(ctx, sandbox.Process{Argv: []string{probe, "tree", "2", dir}}, sandbox.Sink{Stderr: func(b []byte) {
		if leaves += strings.Count(string(b), "leaf"); leaves == 4 {
			fmt.Fprintln(os.Stdout, "running")
		}
	}})
	return err
}

// waitGone waits until no process has an argument that begins with mark.
func waitGone(t *testing.T, mark string) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for deadline := time.After(30 * time.Second); ; {
		left := running(t, mark)
		if len(left) == 0 {
			return
		}
		select {
		case <-look.C:
		case <-deadline:
			t.Fatalf("left: %v", left)
		}
	}
}

func running(t *testing.T, mark string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(b), "\x00"+mark) {
			left = append(left, f)
		}
	}
	return left
}

// TestRemoveForeign: a sandbox whose worker lives, but is another, is ended with
// everything in it.
func TestRemoveForeign(t *testing.T) {
	for _, plain := range []bool{false, true} {
		plain = plain || os.Geteuid() != 0
		cfg := local.Config{Agent: sandboxtest.BuildAgent(t), Dir: sandboxtest.PublicDir(t), NoPIDNamespace: plain}
		mine, err := local.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		other, err := local.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		sb, err := sandbox.Open(t.Context(), mine, "sb-1", sandbox.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		leaves := 0
		exit, err := sb.Run(t.Context(), sandbox.Process{Argv: []string{sandboxtest.BuildProbe(t), "tree", "2", cfg.Dir}}, sandbox.Sink{
			Stderr: func(b []byte) {
				if leaves += strings.Count(string(b), "leaf"); leaves == 4 {
					if err := other.Remove(t.Context(), "sb-1"); err != nil {
						t.Error(err)
					}
				}
			},
		})
		// Without a pid namespace the tool dies first, and its agent may just
		// have the time to say so.
		if err != nil || exit.Cause != sandbox.CauseProtocol && (!plain || exit.Signal != "SIGKILL") {
			t.Errorf("cause %q, error %v", exit.Cause, err)
		}
		if left := running(t, cfg.Dir); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		if err := sb.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// TestListOddities: a sandbox that was never finished is listed, so that it can
// be removed; what is no directory is not a sandbox.
func TestListOddities(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, half := range []string{"half-made", "half-written"} {
		if err := os.Mkdir(filepath.Join(dir, half), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "half-written", "sandbox.json"), []byte(`{"pid":`), 0o600); err != nil {
		t.Fatal(err)
	}
	rt, err := local.New(local.Config{Agent: "/agent", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	list, err := rt.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("list %+v, %v", list, err)
	}
	for _, r := range list {
		if r.Created.IsZero() || !r.Expires.After(r.Created) {
			t.Errorf("created %v, expires %v", r.Created, r.Expires)
		}
		if err := rt.Remove(t.Context(), r.ID); err != nil {
			t.Error(err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []local.Config{{}, {Agent: "/agent"}, {Dir: t.TempDir()}, {Agent: "/agent", Dir: "/proc/no/dir"}} {
		if _, err := local.New(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	rt, err := local.New(local.Config{Agent: "/no/such/agent", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"sb-1", "", "../x", "A"} {
		if _, err := rt.Start(t.Context(), id, sandbox.Spec{}); err == nil {
			t.Errorf("%q was started", id)
		}
	}
	if list, err := rt.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// BenchmarkCall is a whole call, cold: start, run, close.
func BenchmarkCall(b *testing.B) {
	rt, err := local.New(local.Config{Agent: sandboxtest.BuildAgent(b), Dir: sandboxtest.PublicDir(b)})
	if err != nil {
		b.Fatal(err)
	}
	p := sandbox.Process{Argv: []string{sandboxtest.BuildProbe(b), "exit", "0"}}
	i := 0
	for b.Loop() {
		i++
		sb, err := sandbox.Open(b.Context(), rt, fmt.Sprintf("bench-%d", i), sandbox.Spec{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := sb.Run(b.Context(), p, sandbox.Sink{}); err != nil {
			b.Fatal(err)
		}
		if err := sb.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
