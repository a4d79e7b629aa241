package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
)

// TestDispatcherAnswersWhileItStops stops a dispatcher at which a client waits
// for a call that is nearly over: it is answered, and not sent away.
func TestDispatcherAnswersWhileItStops(t *testing.T) {
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	if err := os.CopyFS(tools, onlyYAML{os.DirFS("testdata/tools")}); err != nil {
		t.Fatal(err)
	}
	url := natsdtest.Start(t).ClientURL()
	dispatcher, http := startProgram(t, dir, "dispatcher", `^ready http=(\S+) nats=`,
		"--nats", url, "--tools", tools, "--listen", "127.0.0.1:0")
	t.Cleanup(func() { sweep(t, dir) })
	worker, _ := startProgram(t, dir, "worker", `^ready nats=\S+ worker=(\S+)\n`,
		"--nats", url, "--tools", tools, "--images", exampleImages(t, dir),
		"--state", filepath.Join(dir, "state"), "--programs", repo(t), "--listen", "")
	f := &fleet{t: t, http: http}
	c, err := client.New(http, "")
	if err != nil {
		t.Fatal(err)
	}

	id := f.submit("once", object{"script": "sleep 2; echo done"})
	f.awaitRunning(id)
	result := ""
	err = c.Impatient().Follow(t.Context(), id, func(ev client.Event) error {
		switch e := ev.Event.(type) {
		case agui.RunStarted:
			return dispatcher.cmd.Process.Signal(syscall.SIGTERM)
		case agui.ToolCallResult:
			result, _ = e.Content.Flatten()
		}
		return nil
	})
	if err != nil || result != "done\n" {
		t.Errorf("who waited was told %q: %v", result, err)
	}
	if err := dispatcher.cmd.Wait(); err != nil {
		t.Errorf("the dispatcher ended with %v", err)
	}
	worker.stop(t)
}
