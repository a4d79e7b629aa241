package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hanging is a fleet with one call that ends only when it is cancelled, and
// then only when it may.
type hanging struct {
	*httptest.Server
	streaming chan struct{} // closed when the call runs
	cancelled chan struct{} // closed when it was cancelled
	mayEnd    chan struct{} // closed when it may end
	silent    bool          // the cancel is never answered
}

func newHanging(t *testing.T, silent bool) *hanging {
	h := &hanging{silent: silent, streaming: make(chan struct{}), cancelled: make(chan struct{}), mayEnd: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/calls", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\",\"metadata\":{\"toolfleet.call\":%q}}\n\n", testKey)
		fmt.Fprintf(w, "data: {\"type\":\"ACTIVITY_SNAPSHOT\",\"messageId\":\"exec-%s\",\"activityType\":\"toolfleet.tool-execution\",\"content\":{\"toolName\":\"hang\",\"status\":\"running\"}}\n\n", testKey)
		w.(http.Flusher).Flush()
		close(h.streaming)
		select {
		case <-h.mayEnd:
		case <-r.Context().Done():
			return
		}
		fmt.Fprintf(w, "data: {\"type\":\"TOOL_CALL_RESULT\",\"messageId\":\"res-%s\",\"toolCallId\":\"c\",\"content\":\"The call was cancelled.\",\"metadata\":{\"toolfleet.error\":{\"kind\":\"cancelled\",\"message\":\"m\"}}}\n\n", testKey)
		fmt.Fprint(w, "data: {\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n")
	})
	mux.HandleFunc("DELETE /v1/calls/"+string(testKey), func(w http.ResponseWriter, r *http.Request) {
		close(h.cancelled)
		if h.silent {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	h.Server = httptest.NewServer(mux)
	t.Cleanup(h.Close)
	return h
}

// lines is a buffer that tells when a text was written to it.
type lines struct {
	text string
	want string
	seen chan struct{} // closed when want was written
}

func (l *lines) Write(p []byte) (int, error) {
	had := strings.Contains(l.text, l.want)
	l.text += string(p)
	if !had && strings.Contains(l.text, l.want) {
		close(l.seen)
	}
	return len(p), nil
}

// await fails the test when c is not closed soon.
func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("waited in vain for %s", what)
	}
}

// callHanging starts `toolfleet call` on h in a process of its own; said tells
// when the call is seen to run.
func callHanging(t *testing.T, h *hanging) (cmd *exec.Cmd, out *bytes.Buffer, said *lines) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, said = &bytes.Buffer{}, &lines{want: "hang: running", seen: make(chan struct{})}
	cmd = exec.CommandContext(t.Context(), program, "call", "hang")
	cmd.Env = append(os.Environ(), asProgram+"=1", "TOOLFLEET_URL="+h.URL)
	cmd.Stdout, cmd.Stderr = out, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, h.streaming, "the call")
	await(t, said.seen, "its progress")
	return cmd, out, said
}

func interrupt(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// The first interrupt cancels the call and waits for its result.
func TestInterruptCancelsTheCall(t *testing.T) {
	h := newHanging(t, false)
	cmd, out, said := callHanging(t, h)
	interrupt(t, cmd)
	await(t, h.cancelled, "the cancel")
	close(h.mayEnd)
	_ = cmd.Wait() // its exit code is what is looked at
	if got := cmd.ProcessState.ExitCode(); got != exitFailed {
		t.Errorf("exit code %d, want %d", got, exitFailed)
	}
	if got := out.String(); got != "The call was cancelled.\n" {
		t.Errorf("stdout is %q", got)
	}
	if got := said.text; !strings.Contains(got, "Cancelling the call") {
		t.Errorf("stderr is %q", got)
	}
}

// The second one stops waiting, and tells the truth: the call was cancelled.
func TestSecondInterruptStopsWaiting(t *testing.T) {
	h := newHanging(t, false)
	cmd, out, said := callHanging(t, h)
	interrupt(t, cmd)
	await(t, h.cancelled, "the cancel")
	interrupt(t, cmd)
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != exitFailed {
		t.Errorf("exit code %d, want %d", got, exitFailed)
	}
	if got := out.String(); got != "" {
		t.Errorf("stdout is %q", got)
	}
	if got := said.text; !strings.Contains(got, "interrupt again to stop waiting") ||
		!strings.Contains(got, "is being cancelled. See how it ended with `toolfleet calls show "+string(testKey)) {
		t.Errorf("stderr is %q", got)
	}
}

// A fleet that does not answer the cancel keeps nobody from leaving, and the
// call is not said to be cancelled.
func TestSecondInterruptWhileTheCancelHangs(t *testing.T) {
	h := newHanging(t, true)
	cmd, _, said := callHanging(t, h)
	interrupt(t, cmd)
	await(t, h.cancelled, "the cancel")
	interrupt(t, cmd)
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != exitFailed {
		t.Errorf("exit code %d, want %d", got, exitFailed)
	}
	if got := said.text; !strings.Contains(got, "goes on without us. Follow it with `toolfleet calls follow "+string(testKey)) ||
		!strings.Contains(got, "toolfleet calls cancel "+string(testKey)) || strings.Contains(got, "not cancelled") {
		t.Errorf("stderr is %q", got)
	}
}
