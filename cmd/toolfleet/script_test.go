package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the conversations of testdata/script: command lines, what
// they print, and how they end. Where a fleet is needed, one that is made of
// the script's own files answers: the answer to POST /v1/calls is the file
// "fleet/POST v1 calls", and so on; what was sent to it is noted in the file
// "requests".
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			server := httptest.NewServer(scripted(env.WorkDir))
			env.Defer(server.Close)
			env.Setenv("TOOLFLEET_URL", server.URL)
			return goEnvironment(env)
		},
		Cmds: withPages(map[string]func(*testscript.TestScript, bool, []string){
			"toolfleet": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg {
					ts.Fatalf("say `exits CODE toolfleet …`")
				}
				runScript(ts, exitOK, args)
			},
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 || args[1] != "toolfleet" {
					ts.Fatalf("usage: exits CODE toolfleet …")
				}
				code, err := strconv.Atoi(args[0])
				ts.Check(err)
				runScript(ts, code, args[2:])
			},
		}),
	})
}

// withPages are own and those of pages_test.go.
func withPages(own map[string]func(*testscript.TestScript, bool, []string)) map[string]func(*testscript.TestScript, bool, []string) {
	maps.Copy(own, pageCommands)
	return own
}

// runScript runs one command line in a process of its own, in the script's
// directory.
func runScript(ts *testscript.TestScript, want int, args []string) {
	program, err := os.Executable()
	ts.Check(err)
	cmd := exec.Command(program, args...) //nolint:noctx // testscript has a deadline of its own
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{asProgram + "=1", "TOOLFLEET_URL=" + ts.Getenv("TOOLFLEET_URL"), "HOME=" + cmd.Dir}
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	if input, err := os.Open(ts.MkAbs("stdin")); err == nil {
		defer input.Close()
		cmd.Stdin = input
	}
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		ts.Fatalf("%v", err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// scripted is a fleet that answers from files.
func scripted(dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		note, err := os.OpenFile(filepath.Join(dir, "requests"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer note.Close()
		fmt.Fprintf(note, "%s %s %s\n", r.Method, r.URL, body)

		answer, err := os.ReadFile(filepath.Join(dir, "fleet", r.Method+strings.ReplaceAll(r.URL.Path, "/", " ")))
		if err != nil {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"status":404,"detail":"There is no such call."}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Accept") == "text/event-stream" {
			w.Header().Set("Content-Type", "text/event-stream")
			// The files hold an event a line.
			answer = []byte("data: " + strings.ReplaceAll(strings.TrimSpace(string(answer)), "\n", "\n\ndata: ") + "\n\n")
		}
		if _, err := w.Write(answer); err != nil {
			return // the client has seen enough
		}
	})
}
