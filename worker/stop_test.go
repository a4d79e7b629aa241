package worker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/queue"
	"github.com/toolfleet/toolfleet/results"
	"github.com/toolfleet/toolfleet/sandbox"
)

// TestPain26OneKillPath: whatever ends a call, no process of it is there any
// more when its result is, and each end has a kind of its own. A client that
// goes away is not among them: it ends nothing.
func TestPain26OneKillPath(t *testing.T) {
	// Pain 22's command, and children that are nobody's.
	const tree = "sleep 999 MARK & setsid sleep 999 MARK & (sleep 999 MARK &) ; echo ready >&2; "
	for name, tt := range map[string]struct {
		script string
		change func(*catalog.Job)
		end    func(h *house, job catalog.Job, cancel context.CancelCauseFunc)
		kind   call.Kind
	}{
		"Pain22Cancel": {tree + "sleep 999 MARK", nil, func(h *house, job catalog.Job, _ context.CancelCauseFunc) {
			if err := h.Log.Cancel(h.Context(), ref(job), ""); err != nil {
				h.Error(err)
			}
		}, call.KindCancelled},
		"Pain33Deadline": {tree + "sleep 999 MARK", func(j *catalog.Job) { j.Call.Timeout = 500 * time.Millisecond }, nil, call.KindTimeout},
		"Pain33Drain": {tree + "sleep 999 MARK", nil, func(_ *house, _ catalog.Job, cancel context.CancelCauseFunc) {
			cancel(queue.ErrDraining)
		}, call.KindInterrupted},
		"OutputLimit": {tree + "yes MARK", nil, nil, call.KindOutputLimit},
		"Junk":        {tree + "echo junk >&3; sleep 999 MARK", nil, nil, call.KindCrashed},
		"Exit":        {tree + "exit 0", nil, nil, ""},
		"ExitCode":    {tree + "exit 3", nil, nil, call.KindToolError},
		"Signal":      {tree + "kill -9 $$", nil, nil, call.KindCrashed},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			m := "mark-" + rand.Text()
			// A second argument of sleep is refused, so the mark is its name.
			script := strings.ReplaceAll(tt.script, "sleep 999 MARK", "bash -c 'exec -a "+m+" sleep 999'")
			script = strings.ReplaceAll(script, "MARK", m)
			job := h.admit(script, func(j *catalog.Job) {
				if tt.change != nil {
					tt.change(j)
				}
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			done := make(chan error, 1)
			go func() { done <- h.deliver(ctx, job) }()
			if tt.end != nil {
				h.until(job, shows("ready"))
				if len(marked(t, m)) == 0 {
					t.Error("no process is seen from here")
				}
				tt.end(h, job, cancel)
			}
			h.until(job, func(e results.Entry) bool { return e.Kind == results.KindResult })
			if left := marked(t, m); len(left) != 0 {
				t.Errorf("there is a result, and there are %v", left)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			wantKind(t, h.result(job), tt.kind)
		})
	}
}

// shows looks for an event of the run that shows a text. The admission has the tool's
// script in it, and so every text.
func shows(text string) func(results.Entry) bool {
	return func(e results.Entry) bool {
		return (e.Kind == results.KindState || e.Kind == results.KindProgress) && strings.Contains(string(e.Data), text)
	}
}

// marked lists the processes whose arguments contain m, zombies not counted.
func marked(t *testing.T, m string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(m)) {
			found = append(found, string(b))
		}
	}
	return found
}

// TestGraceIsTheSpecs: the tool's own grace is what it gets, whether it is
// stopped by its deadline or by a cancel, and its end has the kind of the stop.
func TestGraceIsTheSpecs(t *testing.T) {
	const script = `trap 'echo put away; exit 0' TERM; echo begun; echo ready >&2; while :; do sleep 0.05; done`
	for grace, want := range map[time.Duration]string{10 * time.Second: "begun\nput away\n\n", 0: "begun\n\n"} {
		for _, kind := range []call.Kind{call.KindCancelled, call.KindTimeout} {
			h := newHouse(t)
			job := h.admit(script, func(j *catalog.Job) {
				j.Spec.Limits.Grace = catalog.Duration(grace)
				if kind == call.KindTimeout {
					j.Call.Timeout = time.Second
				}
			})
			done := make(chan error, 1)
			go func() { done <- h.deliver(t.Context(), job) }()
			h.until(job, shows("ready"))
			if kind == call.KindCancelled {
				if err := h.Log.Cancel(t.Context(), ref(job), ""); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			r := h.result(job)
			wantKind(t, r, kind)
			if got := words(t, r); !strings.HasPrefix(got, want) {
				t.Errorf("grace %s, %s: it said %q, want %q first", grace, kind, got, want)
			}
			if by := r.Execution.KilledBy; (by == "fleet") != (grace == 0) {
				t.Errorf("grace %s, %s: killed by %q", grace, kind, by)
			}
		}
	}
}

// TestPain45NobodyListens: a follower that reads nothing costs the tool, and its
// result, nothing.
func TestPain45NobodyListens(t *testing.T) {
	h := newHouse(t)
	job := h.admit(`i=0; while [ $i -lt 20000 ]; do echo "line $i" >&2; i=$((i+1)); done; echo done`)
	var stuck []*results.Follower
	for range 20 {
		fo, err := h.Log.Follow(t.Context(), ref(job), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer fo.Stop()
		stuck = append(stuck, fo)
	}
	r := h.run(job)
	wantKind(t, r, "")
	if got := words(t, r); got != "done\n" || r.Execution.StderrBytes != 208890 {
		t.Errorf("%d followers: it said %q, and %d bytes to stderr", len(stuck), got, r.Execution.StderrBytes)
	}
}

// TestPain47ProgressBeforeTheNextStep: what a tool says is at the reader before
// the tool goes on, which it does when the reader says so.
func TestPain47ProgressBeforeTheNextStep(t *testing.T) {
	for name, say := range map[string]string{
		"Stderr": `echo step-1 >&2`,
		"Update": `echo '{"type":"update","message":"step-1"}' >&3`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			dir, err := os.MkdirTemp("", "signs")
			if err == nil {
				err = os.Chmod(dir, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			sign := filepath.Join(dir, "go")
			job := h.admit(say + "; until [ -e " + sign + " ]; do sleep 0.02; done; echo went on")
			done := make(chan error, 1)
			go func() { done <- h.deliver(t.Context(), job) }()
			h.until(job, shows("step-1"))
			if err := os.WriteFile(sign, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := words(t, h.result(job)); got != "went on\n" {
				t.Errorf("it said %q", got)
			}
		})
	}
}

// TestPain48OutputIsNotLogged: whatever a tool writes, and however it ends, none
// of it is in our log.
func TestPain48OutputIsNotLogged(t *testing.T) {
	const canary = "canary-5a1f"
	for _, end := range []string{
		"exit 0", "exit 3", "kill -9 $$", "echo " + canary + " >&3",
		`echo '{"type":"` + canary + `"}' >&3`,
		`echo '{"type":"update","` + canary + `":1}' >&3`,
		`echo '{"type":"result","content":[{"type":"` + canary + `"}]}' >&3`,
		`echo '{"type":"result","` + canary + `":1}' >&3`,
		"yes " + canary,
	} {
		h := newHouse(t)
		var log bytes.Buffer
		h.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		job := h.admit("echo " + canary + "; echo " + canary + " >&2; " + end)
		h.run(job)
		if strings.Contains(log.String(), canary) {
			t.Errorf("%s: the log says %s", end, log.String())
		}
	}
}

// TestPain33OneKindEach: a stop is told by what brought it about, not by how the
// tool took it.
func TestPain33OneKindEach(t *testing.T) {
	for _, tt := range []struct {
		cause error
		kind  call.Kind
	}{
		{errTimeout, call.KindTimeout},
		{errCancelled, call.KindCancelled},
		{errors.Join(errors.New("run"), errTimeout), call.KindTimeout},
	} {
		for _, code := range []int{0, 1, 137} {
			r := outcome(&catalog.Spec{Output: "auto"}, sandbox.Exit{Cause: sandbox.CauseStopped, Code: code}, nil, tt.cause, time.Second)
			wantKind(t, r, tt.kind)
		}
	}
}
