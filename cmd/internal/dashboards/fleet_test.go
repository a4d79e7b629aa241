//go:build ops

package dashboards

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

// Tokens of two tenants; the scraper uses the first.
const (
	acme   = "token-of-acme-0123456789"
	globex = "token-of-globex-0123456789"
)

// fleet is a dispatcher and a worker, as processes, and where they show metrics.
type fleet struct{ dispatcher, worker string }

// startFleet starts both, with two slots, so that the calls of a few clients wait.
func startFleet(t *testing.T) fleet {
	t.Helper()
	dir := t.TempDir()
	nats := natsdtest.URL(natsdtest.Start(t))
	tokens := write(t, filepath.Join(dir, "tokens"), "acme "+acme+"\nglobex "+globex+"\n")
	tools, images := filepath.Join(dir, "tools"), filepath.Join(dir, "images")
	if err := os.Mkdir(images, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"word-count", "flaky"} {
		file, err := os.ReadFile(filepath.Join(root, "examples/tools", name, "tool.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(tools, name, "tool.yaml"), string(file))
		build := exec.CommandContext(t.Context(), program(t, "toolfleet"), "image", "build", "examples/tools/"+name,
			"--tag", "local/"+name+":1", "--output", filepath.Join(images, name+".tar"))
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("image %s: %v\n%s", name, err, out)
		}
	}
	// Nothing listens at port 1, so this image is pulled in vain.
	write(t, filepath.Join(tools, "absent/tool.yaml"), `apiVersion: toolfleet/v1
kind: Tool
name: absent
description: Has an image that cannot be pulled.
image: 127.0.0.1:1/absent:1
command: [/tool]
parameters: {type: object}
`)
	ports := natsdtest.FreePorts(t, 2)
	f := fleet{dispatcher: fmt.Sprint("127.0.0.1:", ports[0]), worker: fmt.Sprint("127.0.0.1:", ports[1])}
	start(t, "ready ", program(t, "dispatcher"), "--listen", f.dispatcher, "--nats", nats, "--tools", tools, "--tokens", tokens)
	start(t, "ready ", program(t, "worker"), "--listen", f.worker, "--nats", nats, "--tools", tools,
		"--images", images, "--state", filepath.Join(dir, "state"), "--slots", "2", "--drain", "10s")
	return f
}

// program is one that `make build` built.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
	return name
}

// start starts a process and waits for a line that begins with ready, or for none
// when that is empty. It ends the process when the test ends, and shows what it
// said if the test failed.
func start(t *testing.T, ready, name string, args ...string) {
	t.Helper()
	stderr, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(name, args...) //nolint:noctx // ended below
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hurry := time.AfterFunc(time.Minute, func() {
			t.Errorf("%s did not end within a minute", filepath.Base(name))
			cmd.Process.Kill() //nolint:errcheck // it may have ended now
		})
		defer hurry.Stop()
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended already
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
		if stderr.Close(); t.Failed() {
			log, _ := os.ReadFile(stderr.Name())
			t.Logf("%s said at the end:\n%s", filepath.Base(name), log[max(0, len(log)-3000):])
		}
	})
	if ready == "" {
		return
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || !strings.HasPrefix(line, ready) {
		t.Fatalf("%s: said %q (%v) and not that it is ready", filepath.Base(name), line, err)
	}
}

// calls are what each client of the load makes, one after the other, over and over.
var calls = []string{
	`{"tool":"word-count","arguments":{"text":"to be or not to be"}}`,
	`{"tool":"flaky","arguments":{"mode":"ok","sleep":400}}`,
	`{"tool":"flaky","arguments":{"mode":"error"}}`,
	`{"tool":"flaky","arguments":{"mode":"flood-stdout","mib":1}}`,
	`{"tool":"flaky","arguments":{"mode":"such is not"}}`,
	`{"tool":"nobody-has-this","arguments":{}}`,
}

// load has four clients of each tenant call until the test ends. One tenant waits
// for results, the other follows streams.
func (f fleet) load(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	t.Cleanup(func() { stop(); all.Wait() })
	for n := range 8 {
		token := []string{acme, globex}[n%2]
		all.Go(func() {
			for i := n; ctx.Err() == nil; i++ {
				if err := f.call(ctx, token, calls[i%len(calls)]); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
}

func (f fleet) call(ctx context.Context, token, body string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+f.dispatcher+"/v1/calls", strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	if token == globex {
		r.Header.Set("Accept", "text/event-stream")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("a call was answered %s: %s", answer.Status, text)
	}
	return err
}
