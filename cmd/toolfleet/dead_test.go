package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/queue"
)

// TestPain66PoisonKillsWorkers kills -9 every worker that takes a call, as often
// as a call is tried. It ends as an error result with a dead letter, and nothing
// of it is in a queue. Made again from the letter, on a worker that lives, it
// succeeds.
func TestPain66PoisonKillsWorkers(t *testing.T) {
	dir := t.TempDir()
	root := repo(t)
	tools := filepath.Join(dir, "tools")
	if err := os.CopyFS(tools, onlyYAML{os.DirFS("testdata/tools")}); err != nil {
		t.Fatal(err)
	}
	url := natsdtest.Start(t).ClientURL()
	const lease = "3s"
	_, door := startProgram(t, dir, "dispatcher", `^ready http=(\S+) nats=`,
		"--nats", url, "--lease", lease, "--tools", tools, "--listen", "127.0.0.1:0")
	f := &fleet{t: t, http: door}
	t.Cleanup(func() { sweep(t, dir) })
	worker := func() *program {
		p, _ := startProgram(t, dir, "worker", `^ready nats=\S+ worker=(\S+)\n`,
			"--nats", url, "--lease", lease, "--tools", tools, "--images", exampleImages(t, dir),
			"--state", filepath.Join(dir, "state"), "--programs", root, "--listen", "")
		return p
	}
	poison := f.submit("repeatable", object{"script": "sleep 2; echo done"})
	for n := 1; n <= call.MaxAttempts; n++ {
		victim := worker()
		f.awaitAttempt(poison, n)
		if err := victim.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = victim.cmd.Wait() // says that it was killed
	}
	if a := f.await(poison); a.kind() != call.KindSandboxFailed || a.Result.Error.Attempt != call.MaxAttempts {
		t.Errorf("the poison ended as %q: %s", a.kind(), a.text())
	}
	letters := f.letters()
	if len(letters) != 1 || letters[0].ID != poison || letters[0].Attempts != call.MaxAttempts || !letters[0].Started {
		t.Errorf("the dead letters are %+v", letters)
	}
	awaitEmpty(t, url, queue.ReadyStream, queue.CallsStream)

	last := worker()
	code, raw := f.do(http.MethodPost, "/v1/dead/"+poison+"/redrive", object{})
	if code != http.StatusAccepted {
		t.Fatalf("HTTP %d: %s", code, raw)
	}
	if a := f.await(f.read(raw).ID); a.kind() != "" || a.text() != "done\n" || a.Result.Execution.RedriveOf != call.Key(poison) {
		t.Errorf("made again it ended as %q: %s, %+v", a.kind(), a.text(), a.Result.Execution)
	}
	if letters := f.letters(); len(letters) != 0 {
		t.Errorf("there are dead letters still: %+v", letters)
	}
	last.stop(t)
}

// TestPain65NobodyDiesOfAnOutage stops containerd while calls come in, for
// longer than all attempts of a call take. The worker takes none meanwhile, and
// when containerd is back each is run; what came when the worker knew of the
// outage has lost no attempt to it.
func TestPain65NobodyDiesOfAnOutage(t *testing.T) {
	dir := t.TempDir()
	f := startFleet(t, dir)
	pids := processes("containerd", dir)
	if len(pids) != 1 {
		t.Fatalf("the fleet has %d containerds", len(pids))
	}
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(pids[0], s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(pids[0], syscall.SIGCONT) }) // or nothing could end it
	var calls []string
	submit := func() {
		for range 8 {
			calls = append(calls, f.submit("repeatable", object{"script": "echo survived"}))
		}
	}
	submit() // more than the warm sandboxes can serve
	awaitLog(t, f.log.Name(), "no work is taken until this is mended")
	known := len(calls)
	submit()
	outage := time.NewTimer(10 * time.Second) // the pauses between attempts add up to 5 s
	defer outage.Stop()
	<-outage.C
	signal(syscall.SIGCONT)
	for i, id := range calls {
		a := f.await(id)
		if a.kind() != "" || a.text() != "survived\n" {
			t.Errorf("a call of the outage ended as %q: %s", a.kind(), a.text())
		} else if i >= known && a.Result.Execution.Attempt != 1 {
			t.Errorf("a call that came in the outage took %d attempts", a.Result.Execution.Attempt)
		}
	}
	if letters := f.letters(); len(letters) != 0 {
		t.Errorf("an outage made dead letters: %+v", letters)
	}
	f.stop()
}

// awaitAttempt waits until a worker has taken the call for the n-th time.
func (f *fleet) awaitAttempt(id string, n int) {
	f.t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(time.Minute); ; {
		var c client.Call
		code, raw := f.do(http.MethodGet, "/v1/calls/"+id, nil)
		if err := json.Unmarshal(raw, &c); err != nil || code != http.StatusOK {
			f.t.Fatalf("HTTP %d: %s", code, raw)
		}
		if c.Attempts >= n && c.Status == call.StatusRunning {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			f.t.Fatalf("no attempt %d: %s", n, raw)
		}
	}
}

// letters lists the dead letters.
func (f *fleet) letters() []client.Letter {
	f.t.Helper()
	code, raw := f.do(http.MethodGet, "/v1/dead", nil)
	var page struct {
		Letters []client.Letter `json:"letters"`
	}
	if err := json.Unmarshal(raw, &page); err != nil || code != http.StatusOK {
		f.t.Fatalf("HTTP %d: %s", code, raw)
	}
	return page.Letters
}

// awaitEmpty waits until there is no message in the streams: a job is taken
// away just after its call was answered.
func awaitEmpty(t *testing.T, url string, streams ...string) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(30 * time.Second)
	for _, name := range streams {
		for {
			s, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if s.CachedInfo().State.Msgs == 0 {
				break
			}
			select {
			case <-again.C:
			case <-deadline:
				t.Fatalf("%d messages stay in %s", s.CachedInfo().State.Msgs, strings.ToLower(name))
			}
		}
	}
}
