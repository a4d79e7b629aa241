package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// TestWatchEndsWell watches a fleet that goes away and comes back, and interrupts
// the watch: it ends with exit code 0, and what it wrote to a pipe is text alone.
func TestWatchEndsWell(t *testing.T) {
	var asked atomic.Int32
	seen := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 2 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"status":503,"detail":"The server is shutting down."}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"at":"2026-05-01T12:00:00Z","problems":["Something."]}`)
		seen <- struct{}{}
	}))
	defer server.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), exe, "status", "--watch", "--every", "500ms", "--url", server.URL)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the third is asked for when the second has been written
		<-seen
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the watch ended with %v: %s", err, &errs)
	}
	block := "12:00:00Z  fleet 1 problem: 0 dispatchers, 0 workers, 0/0 slots busy\n! Something.\n\n0 dead letters\n"
	text := out.String()
	if n := strings.Count(text, block); n < 2 || strings.Contains(text, "\x1b") || !strings.HasPrefix(text, block+"\n") {
		t.Errorf("%d blocks in:\n%s", n, text)
	}
	if !strings.Contains(text, "the fleet answered 503: The server is shutting down.\n\n12:00:00Z") {
		t.Errorf("nothing of the fleet being away in:\n%s", text)
	}
}

// On a terminal each screen takes the place of the last, by nothing that would
// have to be undone.
func TestWatchOnATerminal(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"at":"2026-05-01T12:00:00Z"}`)
	}))
	defer server.Close()
	fleet, err := client.New(server.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	term := &terminal{out: &out, err: &out, width: 60}
	c := &StatusCmd{Format: "text"}
	for first := range 2 {
		if err := c.redraw(t.Context(), term, fleet, first == 0); err != nil {
			t.Fatal(err)
		}
	}
	screen := clearScreen + "12:00:00Z  fleet healthy: 0 dispatchers, 0 workers, 0/0 slo…\n\n0 dead letters\n"
	if got := out.String(); got != screen+screen {
		t.Errorf("got %q, want twice %q", got, screen)
	}
}

// A large fleet is cut, those that need somebody are not.
func TestScreenOfALargeFleet(t *testing.T) {
	s := &client.Status{}
	for i := range 100 {
		s.Workers = append(s.Workers, client.WorkerStatus{Worker: client.Worker{ID: fmt.Sprintf("w-%02d", i), Class: strings.Repeat("c", 60)}, State: "ready"})
		s.Problems = append(s.Problems, strings.Repeat("word ", 40))
	}
	s.Workers[99].State = "not ready"
	text := (&screen{width: 80, status: s}).String()
	for _, want := range []string{"w-99", "and 88 more", "and 92 more: see --json"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}
