package worker

import (
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/sandbox"
)

func TestOutcome(t *testing.T) {
	spec := func(output string) *catalog.Spec {
		return &catalog.Spec{Output: output, Limits: catalog.Limits{Memory: 64 << 20, Disk: 1 << 20, Output: 1 << 10, Pids: 3}}
	}
	for _, tt := range []struct {
		name   string
		output string
		exit   sandbox.Exit
		cause  error
		kind   call.Kind
		says   string
	}{
		{"text", "auto", sandbox.Exit{Cause: sandbox.CauseExited, Stdout: []byte("hi")}, nil, "", "hi"},
		{"nothing", "auto", sandbox.Exit{Cause: sandbox.CauseExited}, nil, "", ""},
		{"json is compacted", "json", sandbox.Exit{Cause: sandbox.CauseExited, Stdout: []byte("{ \"a\" : 1 }\n")}, nil, "", `{"a":1}`},
		{"json that is none", "json", sandbox.Exit{Cause: sandbox.CauseExited, Stdout: []byte("{a")}, nil, call.KindToolError, "{a\nThe tool's output is not what it declares: not JSON."},
		{"parts, one of no use", "parts", sandbox.Exit{Cause: sandbox.CauseExited, Stdout: []byte(`[{"type":"hologram"},{"type":"text","text":"a"},{"type":"document","source":{"type":"file","value":"f"}}]`)}, nil, "", "a"},
		{"broken text", "text", sandbox.Exit{Cause: sandbox.CauseExited, Stdout: []byte("a\xffb")}, nil, "", "a\uFFFDb"},
		{"exit code", "auto", sandbox.Exit{Cause: sandbox.CauseExited, Code: 7, Stdout: []byte("out"), Stderr: []byte("why\n")}, nil, call.KindToolError, "out\nThe tool exited with code 7. It said:\nwhy"},
		{"result message and exit code", "auto", sandbox.Exit{Cause: sandbox.CauseExited, Code: 1, Result: []byte(`{"type":"result","content":[{"type":"text","text":"said"}],"is_error":false}`)}, nil, call.KindToolError, "said\nThe tool exited with code 1."},
		{"result message", "auto", sandbox.Exit{Cause: sandbox.CauseExited, Stdout: []byte("ignored"), Result: []byte(`{"type":"result","content":[{"type":"text","text":"said"}],"is_error":false}`)}, nil, "", "said"},
		{"error result message", "auto", sandbox.Exit{Cause: sandbox.CauseExited, Result: []byte(`{"type":"result","content":[{"type":"text","text":"no"}],"is_error":true}`)}, nil, call.KindToolError, "no"},
		{"error result message, disk met", "auto", sandbox.Exit{Cause: sandbox.CauseExited, Met: sandbox.CauseDiskLimit, Result: []byte(`{"type":"result","content":[{"type":"text","text":"no"}],"is_error":true}`)}, nil, call.KindDiskLimit, "no\nThe tool filled its disk of 1 MiB."},
		{"success in spite of a limit", "auto", sandbox.Exit{Cause: sandbox.CauseExited, Met: sandbox.CausePidsLimit, Stdout: []byte("ok")}, nil, "", "ok"},
		{"junk result message", "auto", sandbox.Exit{Cause: sandbox.CauseExited, Result: []byte(`{"type":"result","content":7}`)}, nil, call.KindCrashed, ""},
		{"signal", "auto", sandbox.Exit{Cause: sandbox.CauseSignaled, Signal: "SIGSEGV"}, nil, call.KindCrashed, "The tool was killed by signal SIGSEGV."},
		{"timeout", "auto", sandbox.Exit{Cause: sandbox.CauseStopped}, errTimeout, call.KindTimeout, "The tool did not end within 5s and was stopped."},
		{"cancel", "auto", sandbox.Exit{Cause: sandbox.CauseStopped}, errCancelled, call.KindCancelled, "The call was cancelled."},
		{"memory", "auto", sandbox.Exit{Cause: sandbox.CauseOutOfMemory}, nil, call.KindOutOfMemory, "The tool needed more memory than its limit of 64 MiB."},
		{"pids", "auto", sandbox.Exit{Cause: sandbox.CausePidsLimit}, nil, call.KindPidsLimit, "The tool needed more processes than its limit of 3."},
		{"disk", "auto", sandbox.Exit{Cause: sandbox.CauseDiskLimit}, nil, call.KindDiskLimit, "The tool filled its disk of 1 MiB."},
		{"output, cut inside a rune", "auto", sandbox.Exit{Cause: sandbox.CauseOutputLimit, Stdout: []byte("é\xc3")}, nil, call.KindOutputLimit, "é\nThe tool wrote more than its output limit of 1 KiB and was stopped; the head is kept."},
		{"not started", "auto", sandbox.Exit{Cause: sandbox.CauseNotStarted, Detail: "/x: no such file"}, nil, call.KindToolError, "The tool could not be started: /x: no such file."},
		{"protocol", "auto", sandbox.Exit{Cause: sandbox.CauseProtocol, Detail: "a line is too long"}, nil, call.KindCrashed, "The tool broke the protocol: a line is too long."},
		{"a cause of tomorrow", "auto", sandbox.Exit{Cause: "new"}, nil, call.KindInternal, "The tool ended in a way the fleet does not know."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := outcome(spec(tt.output), tt.exit, nil, tt.cause, 5*time.Second)
			wantKind(t, r, tt.kind)
			if got := words(t, r); tt.says != "" && got != tt.says {
				t.Errorf("it says %q, want %q", got, tt.says)
			}
		})
	}
}

// TestPain56Evidence: whatever the kind of an error, the code or the signal of
// the process is beside it.
func TestPain56Evidence(t *testing.T) {
	spec := &catalog.Spec{Output: "auto"}
	for _, exit := range []sandbox.Exit{
		{Cause: sandbox.CauseStopped, Signal: "SIGKILL"},
		{Cause: sandbox.CauseOutOfMemory, Signal: "SIGKILL"},
		{Cause: sandbox.CauseSignaled, Signal: "SIGSEGV"},
		{Cause: sandbox.CauseDiskLimit, Code: 2},
		{Cause: sandbox.CauseExited, Code: 3},
	} {
		e := outcome(spec, exit, nil, errTimeout, time.Second).Error
		code := 0
		if e.ExitCode != nil {
			code = *e.ExitCode
		}
		if e.Signal != exit.Signal || code != exit.Code {
			t.Errorf("%s: code %d, signal %q, want %d, %q", exit.Cause, code, e.Signal, exit.Code, exit.Signal)
		}
	}
}

func TestReminderIsStapledToFailuresToo(t *testing.T) {
	spec := &catalog.Spec{Output: "auto", Reminder: "be kind"}
	for _, code := range []int{0, 1} {
		r := outcome(spec, sandbox.Exit{Cause: sandbox.CauseExited, Code: code, Stdout: []byte("x")}, nil, nil, 0)
		if len(r.Extra) != 1 || r.Extra[0].Text != "\n\nbe kind" {
			t.Errorf("exit code %d: extra is %+v", code, r.Extra)
		}
	}
}

func TestForeignFileHandles(t *testing.T) {
	file := func(value string) agui.Part {
		return agui.Media(agui.PartDocument, agui.Source{Type: agui.SourceFile, Value: value, Provider: "openai"})
	}
	r := foreign(call.Result{
		Content: []agui.Part{agui.Text("a"), file("file-1"), file("file-2"), file("file"), file("")},
		Extra:   []agui.Part{file("file-3")},
	}, []byte(`{"attached":["file-1"],"note":"file-2 is not it"}`))
	if len(r.Content) != 2 || r.Content[1].Source.Value != "file-1" || len(r.Extra) != 0 || len(r.Dropped) != 4 {
		t.Errorf("got %+v", r)
	}
}
