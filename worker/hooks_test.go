package worker

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

func reminded(j *catalog.Job) { j.Spec.Reminder = "be kind" }

func TestAHookMayDenyACall(t *testing.T) {
	h := newHouse(t)
	h.Hooks.Before = func(_ context.Context, c call.Call, spec *catalog.Spec) error {
		if spec.Name == "sh" && strings.Contains(c.Arguments, "a") {
			return errors.New("not on a Monday")
		}
		return nil
	}
	job := h.admit("echo ran")
	r := h.run(job)
	wantKind(t, r, call.KindDeclined)
	if got := words(t, r); got != "The call was denied: not on a Monday" {
		t.Errorf("it says %q", got)
	}
	if n := h.pool.started.Load(); n != 0 {
		t.Errorf("%d sandboxes were started for it", n)
	}
	if got := h.kinds(job); got != "admit start result" { // the start is void: nobody else may run it
		t.Errorf("the log is %q", got)
	}
}

// A hook after a call sees failures as well, and what it appends stands behind
// what the tool and its file put there.
func TestAHookMayAppendAndReplace(t *testing.T) {
	h := newHouse(t)
	h.Hooks.After = func(_ context.Context, _ call.Call, _ *catalog.Spec, r call.Result) call.Result {
		r.Extra = append(r.Extra, call.Reminder("and brief"))
		r.CallID, r.Execution = "mine", nil
		return r
	}
	for script, says := range map[string]string{
		`echo '{"type":"result","content":"yes","extra":[{"type":"text","text":", it said"}]}' >&3`: "yes, it said\n\nbe kind\n\nand brief",
		"echo so far; exit 7": "so far\n\nThe tool exited with code 7.\n\nbe kind\n\nand brief",
	} {
		job := h.admit(script, reminded)
		r := h.run(job)
		if got := words(t, r); got != says {
			t.Errorf("it says %q, want %q", got, says)
		}
		if r.CallID != job.Call.ToolCallID || r.Execution == nil {
			t.Errorf("call %q, execution %v", r.CallID, r.Execution)
		}
	}
	h.Hooks.After = func(context.Context, call.Call, *catalog.Spec, call.Result) call.Result {
		return call.Result{Content: []agui.Part{agui.Text("no")}, IsError: true}
	}
	r := h.run(h.admit("echo yes"))
	wantKind(t, r, call.KindToolError)
	if got := words(t, r); got != "no" {
		t.Errorf("it says %q", got)
	}
}

// A hook is not passed over because a tool left an empty file.
func TestAHookSeesAnEmptyFile(t *testing.T) {
	h := newHouse(t)
	h.Hooks.After = func(_ context.Context, _ call.Call, _ *catalog.Spec, r call.Result) call.Result {
		r.Content[0].Text = "checked"
		return r
	}
	r := h.run(h.admit("echo said; : > out/empty"))
	if len(r.Content) != 2 || r.Content[0].Text != "checked" {
		t.Errorf("the result holds %+v", r.Content)
	}
}

// What the fleet failed at stays the fleet's failure, whatever a hook makes of it.
func TestAHookDoesNotHideTheFleetsFailure(t *testing.T) {
	before := call.Failure(call.KindSandboxFailed, "lost")
	r := settled(call.Result{Content: []agui.Part{agui.Text("all is well")}}, before)
	if r.Kind() != call.KindSandboxFailed || !r.IsError {
		t.Errorf("the kind is %q", r.Kind())
	}
	if r = settled(call.Failure(call.KindDeclined, "no"), call.Result{}); r.Kind() != call.KindDeclined {
		t.Errorf("the kind is %q", r.Kind())
	}
	if r = settled(call.Result{Content: r.Content, Error: r.Error}, before); r.Error == nil {
		t.Error("the error is gone")
	}
}

// A hook that panics, hangs or answers with what nobody can read costs its call
// nothing but what it would have said.
func TestHooksAreBounded(t *testing.T) {
	hookTimeout = 50 * time.Millisecond
	t.Cleanup(func() { hookTimeout = 10 * time.Second })
	release := make(chan struct{})
	done := make(chan struct{}, 2)
	for name, misbehave := range map[string]func(){
		"panics": func() { panic("at the disco") },
		"exits":  runtime.Goexit,
		"hangs":  func() { <-release; done <- struct{}{} },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			h.Hooks.Before = func(context.Context, call.Call, *catalog.Spec) error { misbehave(); return nil }
			r := h.run(h.admit("echo ran"))
			wantKind(t, r, call.KindDeclined)
			if got := words(t, r); got != "The call was denied: it could not be checked" {
				t.Errorf("it says %q", got)
			}
			h.Hooks = Hooks{After: func(_ context.Context, _ call.Call, _ *catalog.Spec, r call.Result) call.Result {
				misbehave()
				r.Content[0].Text = "too late"
				return r
			}}
			if got := words(t, h.run(h.admit("echo ran"))); got != "ran\n" {
				t.Errorf("it says %q", got)
			}
		})
	}
	close(release) // goleak sees that those that hung have ended
	<-done
	<-done
	h := newHouse(t)
	h.Hooks.After = func(context.Context, call.Call, *catalog.Spec, call.Result) call.Result {
		return call.Result{Content: []agui.Part{{Type: agui.PartImage}}}
	}
	if got := words(t, h.run(h.admit("echo ran"))); got != "ran\n" {
		t.Errorf("with a part that is none it says %q", got)
	}
}

// A worker that is told to stop while a hook thinks denies nothing.
func TestAHookAndADrain(t *testing.T) {
	h := newHouse(t)
	ctx, cancel := context.WithCancel(t.Context())
	h.Hooks.Before = func(ctx context.Context, _ call.Call, _ *catalog.Spec) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	job := h.admit("echo ran")
	if err := h.deliver(ctx, job); !errors.As(err, new(*errGiveBack)) {
		t.Errorf("the delivery: %v", err)
	}
	if s := h.state(job); s.Result != nil {
		t.Errorf("it has the result %+v", s.Result)
	}
}
