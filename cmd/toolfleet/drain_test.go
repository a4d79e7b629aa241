package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

// TestPain78StuckToolsDoNotHoldAStop: a worker whose slots are all taken by
// tools that never end, and do not listen, still answers for its health,
// ends when its drain is over or at the second signal, and each of
// its calls has its result.
func TestPain78StuckToolsDoNotHoldAStop(t *testing.T) {
	dir := t.TempDir()
	root := repo(t)
	tools := filepath.Join(dir, "tools")
	if err := os.CopyFS(tools, onlyYAML{os.DirFS("testdata/tools")}); err != nil {
		t.Fatal(err)
	}
	url := natsdtest.Start(t).ClientURL()
	_, dispatcher := startProgram(t, dir, "dispatcher", `^ready http=(\S+) nats=`,
		"--nats", url, "--tools", tools, "--listen", "127.0.0.1:0")
	f := &fleet{t: t, http: dispatcher}
	t.Cleanup(func() { sweep(t, dir) })

	for name, drain := range map[string]string{"Drain": "500ms", "SecondSignal": "30m"} {
		t.Run(name, func(t *testing.T) {
			f := *f
			f.t = t
			health := freeAddress(t)
			worker, _ := startProgram(t, dir, "worker", `^ready nats=\S+ worker=(\S+)\n`,
				"--nats", url, "--tools", tools, "--images", exampleImages(t, dir), "--state", filepath.Join(dir, "state"),
				"--programs", root, "--listen", health, "--slots", "2", "--drain", drain)
			stuck := object{"script": "trap '' TERM; while :; do sleep 1; done"}
			calls := []string{f.submit("once", stuck), f.submit("once", stuck)}
			for _, id := range calls {
				f.awaitRunning(id)
			}
			t.Run("Pain44HealthWhileSlotsHang", func(t *testing.T) {
				for _, page := range []string{"/healthz", "/readyz", "/metrics"} {
					expectPage(t, "http://"+health+page)
				}
			})
			if err := worker.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if name == "SecondSignal" {
				awaitLog(t, worker.log, "a second signal hurries")
				if err := worker.cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			if err := worker.cmd.Wait(); err != nil {
				text, _ := os.ReadFile(worker.log)
				t.Errorf("the worker ended with %v\n%s", err, text)
			}
			for _, id := range calls {
				if a := f.await(id); a.kind() != call.KindInterrupted || a.Result.Execution.KilledBy != "fleet" {
					t.Errorf("ended as %q, %+v: %s", a.kind(), a.Result.Execution, a.text())
				}
			}
			if left := traces(t, dir); left != (trace{}) {
				t.Errorf("left behind: %+v", left)
			}
		})
	}
}

// freeAddress is an address that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// expectPage expects HTTP 200 of a page.
func expectPage(t *testing.T, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s answers with %s", url, resp.Status)
	}
}

// awaitLog waits until a log says something.
func awaitLog(t *testing.T, path, want string) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(time.Minute); ; {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), want) {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("the log never said %q:\n%s", want, text)
		}
	}
}
