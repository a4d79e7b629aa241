package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

// program is one of the fleet's programs, running.
type program struct {
	cmd *exec.Cmd
	log string
}

// startProgram builds and starts ./cmd/<name> and waits for its ready line,
// which must match ready; it returns what the first group matched.
func startProgram(t *testing.T, dir, name, ready string, flags ...string) (*program, string) {
	t.Helper()
	exe := filepath.Join(dir, name)
	build := exec.CommandContext(t.Context(), "go", "build", "-race", "-buildvcs=false", "-o", exe, "../"+name)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	p := &program{log: filepath.Join(dir, name+".log")}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), exe, flags...)
	p.cmd.Stdout, p.cmd.Stderr = w, log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // fails when it was waited for already
		r.Close()
	})
	if err := r.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4096)
	n, err := r.Read(line)
	m := regexp.MustCompile(ready).FindSubmatch(line[:n])
	if m == nil {
		text, _ := os.ReadFile(p.log)
		t.Fatalf("%s said %q (%v)\n%s", name, line[:n], err, text)
	}
	return p, string(m[1])
}

// stop is a SIGTERM that must end the program with exit code 0.
func (p *program) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		text, _ := os.ReadFile(p.log)
		t.Errorf("%s ended with %v\n%s", filepath.Base(p.cmd.Path), err, text)
	}
}

// TestSeparateProcesses runs a dispatcher and a worker against a NATS server,
// each in a process of its own, loses the worker in the middle of a call, and
// drains its successor.
func TestSeparateProcesses(t *testing.T) {
	dir := t.TempDir()
	root := repo(t)
	tools := filepath.Join(dir, "tools")
	if err := os.CopyFS(tools, onlyYAML{os.DirFS("testdata/tools")}); err != nil {
		t.Fatal(err)
	}
	url := natsdtest.Start(t).ClientURL()
	_, http := startProgram(t, dir, "dispatcher", `^ready http=(\S+) nats=`,
		"--nats", url, "--tools", tools, "--listen", "127.0.0.1:0")
	worker := func() *program {
		p, _ := startProgram(t, dir, "worker", `^ready nats=\S+ worker=(\S+)\n`,
			"--nats", url, "--tools", tools, "--images", exampleImages(t, dir),
			"--state", filepath.Join(dir, "state"), "--programs", root, "--listen", "")
		return p
	}
	f := &fleet{t: t, http: http}
	t.Cleanup(func() { sweep(t, dir) })

	first := worker()
	script := object{"script": "sleep 2; echo done"}
	again, once := f.submit("repeatable", script), f.submit("once", script)
	f.awaitRunning(again)
	f.awaitRunning(once)
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait() // says that it was killed

	second := worker()
	if a := f.await(again); a.kind() != "" || a.Result.Execution.Attempt != 2 {
		t.Errorf("the call that may be repeated ended as %q in attempt %+v: %s", a.kind(), a.Result.Execution, a.text())
	}
	if a := f.await(once); a.kind() != call.KindInterrupted {
		t.Errorf("the call that may not be repeated ended as %q: %s", a.kind(), a.text())
	}
	draining := f.submit("once", script)
	f.awaitRunning(draining)
	second.stop(t)
	if a := f.await(draining); a.kind() != "" || a.text() != "done\n" {
		t.Errorf("a call in a drain ended as %q: %s", a.kind(), a.text())
	}
	if left := traces(t, dir); left != (trace{}) {
		t.Errorf("left behind: %+v", left)
	}
}
