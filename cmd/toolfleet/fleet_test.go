package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

// asProgram makes the test binary be the program: the tests run real fleets in
// processes of their own, with the race detector in them, and kill them.
const asProgram = "TOOLFLEET_TEST_AS_PROGRAM"

// repo returns the root of the checkout.
func repo(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// fleet is a `toolfleet up` in a process of its own.
type fleet struct {
	t     testing.TB
	cmd   *exec.Cmd
	state string
	http  string
	log   *os.File
	ended chan error
}

// exampleImages links the images of the example tools into a directory below dir:
// all but those with an interpreter or with Debian's packages, which have tests of
// their own, since every fleet imports what it is given.
func exampleImages(t testing.TB, dir string) string {
	t.Helper()
	from := filepath.Join(repo(t), "bin", "images")
	archives, _ := filepath.Glob(filepath.Join(from, "*.tar"))
	if len(archives) == 0 {
		t.Fatalf("no images in %s: run `make setup tool-images` first", from)
	}
	to := filepath.Join(dir, "images")
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, archive := range archives {
		name := filepath.Base(archive)
		if info, err := os.Stat(archive); err != nil || info.Size() > 16<<20 {
			continue
		}
		if err := os.Symlink(archive, filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	return to
}

// startFleet starts a fleet on state and waits for its ready line. The tools
// are the examples and those of testdata/tools.
func startFleet(t testing.TB, state string, flags ...string) *fleet {
	t.Helper()
	root := repo(t)
	images := exampleImages(t, state)
	tools := filepath.Join(state, "tools")
	if _, err := os.Stat(tools); err != nil {
		for _, from := range []string{filepath.Join(root, "examples", "tools"), "testdata/tools"} {
			if err := os.CopyFS(tools, onlyYAML{os.DirFS(from)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := &fleet{t: t, state: state, ended: make(chan error, 1)}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f.log, err = os.OpenFile(filepath.Join(state, "fleet.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), exe, append([]string{
		"up", "--state", filepath.Join(state, "state"), "--tools", tools, "--images", images,
		"--programs", root, "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
	}, flags...)...)
	f.cmd.Env = append(os.Environ(), asProgram+"=1")
	f.cmd.Stderr = f.log
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		s := bufio.NewScanner(out)
		for s.Scan() {
			if m := regexp.MustCompile(`^ready http=(\S+) nats=\S+$`).FindStringSubmatch(s.Text()); m != nil {
				ready <- m[1]
			}
		}
		close(ready)
		f.ended <- f.cmd.Wait()
	}()
	t.Cleanup(func() {
		f.kill()
		f.log.Close()
		sweep(t, state)
	})
	select {
	case url, ok := <-ready:
		if !ok {
			t.Fatalf("the fleet ended before it was ready:\n%s", f.logTail())
		}
		f.http = url
	case <-time.After(2 * time.Minute):
		t.Fatalf("the fleet is not ready:\n%s", f.logTail())
	}
	return f
}

func (f *fleet) logTail() string {
	if f.log == nil {
		return ""
	}
	b, _ := os.ReadFile(f.log.Name())
	return string(b[max(0, len(b)-6000):])
}

// kill is kill -9, and waits for the process to be gone.
func (f *fleet) kill() {
	if f.cmd == nil {
		return
	}
	_ = f.cmd.Process.Kill()
	<-f.ended
	f.cmd = nil
}

// stop is a SIGTERM that must end the fleet with exit code 0.
func (f *fleet) stop() {
	f.t.Helper()
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		f.t.Fatal(err)
	}
	select {
	case err := <-f.ended:
		f.cmd = nil
		if err != nil {
			f.t.Fatalf("the fleet did not end cleanly: %v\n%s", err, f.logTail())
		}
	case <-time.After(90 * time.Second):
		_ = f.cmd.Process.Signal(syscall.SIGQUIT)
		f.t.Fatalf("the fleet does not end:\n%s", f.logTail())
	}
}

// answer is what POST /v1/calls and GET /v1/calls/{id} return.
type answer struct {
	ID         string      `json:"id"`
	ToolCallID string      `json:"toolCallId"`
	Status     call.Status `json:"status"`
	Result     struct {
		Content   []agui.Part     `json:"content"`
		IsError   bool            `json:"isError"`
		Extra     []agui.Part     `json:"extra"`
		Error     *call.Error     `json:"error"`
		Execution *call.Execution `json:"execution"`
	} `json:"result"`
}

// kind is how the call failed, or "".
func (a answer) kind() call.Kind {
	return call.Result{IsError: a.Result.IsError, Error: a.Result.Error}.Kind()
}

// text joins the result's text parts.
func (a answer) text() string {
	var b strings.Builder
	for _, p := range append(a.Result.Content, a.Result.Extra...) {
		b.WriteString(p.Text)
	}
	return b.String()
}

// post sends one request and returns the status and the body.
func (f *fleet) do(method, path string, body any) (int, []byte) {
	f.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			f.t.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, f.http+path, r)
	if err != nil {
		f.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatalf("%s %s: %v\n%s", method, path, err, f.logTail())
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, raw
}

type object map[string]any

// call runs a call to its end.
func (f *fleet) call(tool string, arguments any) answer {
	f.t.Helper()
	code, raw := f.do("POST", "/v1/calls", object{"tool": tool, "arguments": arguments})
	if code != http.StatusOK {
		f.t.Fatalf("%s: HTTP %d: %s", tool, code, raw)
	}
	return f.read(raw)
}

// submit starts a call and returns its id.
func (f *fleet) submit(tool string, arguments any) string {
	f.t.Helper()
	code, raw := f.do("POST", "/v1/calls?wait=0", object{"tool": tool, "arguments": arguments})
	if code != http.StatusAccepted {
		f.t.Fatalf("%s: HTTP %d: %s", tool, code, raw)
	}
	return f.read(raw).ID
}

func (f *fleet) read(raw []byte) answer {
	f.t.Helper()
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil {
		f.t.Fatalf("%v: %s", err, raw)
	}
	return a
}

// events follows a call over SSE and hands every event to f until it returns
// false or the stream ends.
func (f *fleet) events(id string, each func(event map[string]any) bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.http+"/v1/calls/"+id+"/events", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	s := bufio.NewScanner(resp.Body)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		data, ok := strings.CutPrefix(s.Text(), "data: ")
		if !ok {
			continue
		}
		var ev map[string]any
		if err := json.Unmarshal([]byte(data), &ev); err != nil {
			f.t.Fatalf("%v: %s", err, data)
		}
		if !each(ev) {
			return
		}
	}
}

// awaitRunning follows a call until its tool runs.
func (f *fleet) awaitRunning(id string) {
	f.t.Helper()
	running := false
	f.events(id, func(ev map[string]any) bool {
		running = strings.Contains(fmt.Sprint(ev), string(call.StatusRunning))
		return !running
	})
	if !running {
		f.t.Fatalf("call %s never ran\n%s", id, f.logTail())
	}
}

// await waits for a call's result.
func (f *fleet) await(id string) answer {
	f.t.Helper()
	results := 0
	f.events(id, func(ev map[string]any) bool {
		if ev["type"] == "TOOL_CALL_RESULT" {
			results++
		}
		return true
	})
	if results != 1 {
		f.t.Fatalf("call %s has %d results", id, results)
	}
	code, raw := f.do("GET", "/v1/calls/"+id, nil)
	if code != http.StatusOK {
		f.t.Fatalf("HTTP %d: %s", code, raw)
	}
	return f.read(raw)
}
