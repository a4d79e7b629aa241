package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/results"
)

// newCall is a call of tool with its own id.
func newCall(tool, args, id string) call.Call {
	return call.Call{
		Tenant: call.DefaultTenant, ThreadID: "thread", RunID: "run", Scope: "run",
		ToolCallID: id, Tool: tool, Arguments: args,
	}
}

func submit(t *testing.T, f *dispatchtest.Fleet, c call.Call) dispatch.Ticket {
	t.Helper()
	ticket, err := f.Submit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

// collect reads a run to its end.
func collect(t *testing.T, f *dispatchtest.Fleet, ref results.Ref, o dispatch.FollowOptions) []dispatch.RunEvent {
	t.Helper()
	run, err := f.Follow(t.Context(), ref, o)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	var evs []dispatch.RunEvent
	for {
		ev, err := run.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return evs
		}
		if err != nil {
			t.Fatal(err)
		}
		evs = append(evs, ev)
	}
}

// types names events; deltas that follow each other are one.
func types(evs []dispatch.RunEvent) string {
	var names []string
	for _, ev := range evs {
		name := string(ev.EventType())
		if name == string(agui.TypeActivityDelta) && len(names) > 0 && names[len(names)-1] == name {
			continue
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// echo answers with its arguments after two updates.
func echo(_ context.Context, r *dispatchtest.Running) call.Result {
	r.Update("one", 1)
	r.Update("one two", 2)
	return call.Result{Content: []agui.Part{agui.Text(r.Args)}}
}

// hang waits for its end.
func hang(ctx context.Context, r *dispatchtest.Running) call.Result {
	r.Update("working", 1)
	<-ctx.Done()
	return call.Result{Content: []agui.Part{agui.Text("so far")}}
}

func TestCallRunsAndShowsAsOneRun(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo})
	ticket := submit(t, f, newCall("echo", `{"text":"hi"}`, "c1"))
	if !ticket.New {
		t.Error("a new call was known")
	}
	evs := collect(t, f, ticket.Ref, dispatch.FollowOptions{})
	want := "RUN_STARTED TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END ACTIVITY_SNAPSHOT ACTIVITY_SNAPSHOT ACTIVITY_DELTA TOOL_CALL_RESULT RUN_FINISHED"
	if got := types(evs); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r, err := f.Wait(t.Context(), ticket.Ref)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]agui.Part{agui.Text(`{"text":"hi"}`)}, r.Content); diff != "" || r.IsError {
		t.Errorf("result: %s", diff)
	}
	st, err := f.Status(t.Context(), ticket.Ref)
	if err != nil || st.Status != call.StatusSucceeded || st.Claims != 1 {
		t.Errorf("status %+v, %v", st, err)
	}
	for _, ev := range evs {
		if data, err := agui.Encode(ev.Event); err != nil || strings.Contains(string(data), "nonce") {
			t.Errorf("%s shows what the fleet keeps for itself (%v): %s", ev.EventType(), err, data)
		}
	}
}

// Await says the same to whoever submitted first, to whoever comes again, and
// as a look at the call.
func TestAwait(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo})
	c := newCall("echo", `{"text":"hi"}`, "c1")
	for _, again := range []bool{false, true} {
		ticket := submit(t, f, c)
		st, err := f.Await(t.Context(), ticket)
		if err != nil || ticket.New == again {
			t.Fatal(ticket.New, err)
		}
		want, err := f.Status(t.Context(), ticket.Ref)
		if err != nil {
			t.Fatal(err)
		}
		st.Job = want.Job // its times have lost a clock reading
		if diff := cmp.Diff(want, st); diff != "" || st.Status != call.StatusSucceeded {
			t.Errorf("again %t: %s is not what the log says: %s", again, st.Status, diff)
		}
	}
}

func TestSameCallAgainIsTheSameTicket(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	c := newCall("echo", `{"text":"hi"}`, "c1")
	first := submit(t, f, c)
	c.RunID = "another run"
	second := submit(t, f, c)
	if second.New || second.Ref != first.Ref || second.Call.RunID != "run" {
		t.Errorf("second ticket %+v", second)
	}
	depth, err := f.Queue.Depth(t.Context(), "default")
	if err != nil || depth.Waiting != 1 {
		t.Errorf("depth %+v, %v; want one job", depth, err)
	}
	for name, other := range map[string]call.Call{
		"other arguments": newCall("echo", `{"text":"ho"}`, "c1"),
		"another tool":    newCall("nope", `{"text":"hi"}`, "c1"),
		"long arguments":  newCall("echo", `{"text":"`+strings.Repeat("x", 400<<10)+`"}`, "c1"),
	} {
		if _, err := f.Submit(t.Context(), other); !errors.Is(err, dispatch.ErrConflict) {
			t.Errorf("%s: %v, want ErrConflict", name, err)
		}
	}
}

func TestRefusalsAreAnswersInALog(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil),
		dispatchtest.Spec("consent", func(s *catalog.Spec) { s.Approval = catalog.ApprovalRequired }))
	for name, test := range map[string]struct {
		tool, args string
		kind       call.Kind
		says       []string
	}{
		"unknown tool": {"ecko", `{}`, call.KindUnknownTool, []string{"ecko", "echo"}},
		"not JSON":     {"echo", `{oops`, call.KindInvalidArguments, []string{"JSON"}},
		"every problem": {
			"echo", `{"times":0,"color":"red"}`, call.KindInvalidArguments,
			[]string{"text", "times", "color"},
		},
		"too long": {"echo", `{"text":"` + strings.Repeat("x", call.MaxArguments) + `"}`, call.KindInvalidArguments, []string{"bytes"}},
		"consent":  {"consent", `{"text":"x"}`, call.KindDeclined, []string{"onsent"}},
	} {
		t.Run(name, func(t *testing.T) {
			ticket := submit(t, f, newCall(test.tool, test.args, name))
			r, err := f.Wait(t.Context(), ticket.Ref)
			if err != nil {
				t.Fatal(err)
			}
			if r.Kind() != test.kind || r.Status() != call.StatusRefused {
				t.Errorf("kind %q, status %q", r.Kind(), r.Status())
			}
			text, _ := agui.ContentOf(r.Content).Flatten()
			for _, want := range test.says {
				if !strings.Contains(text, want) {
					t.Errorf("%q says nothing of %q", text, want)
				}
			}
			got := types(collect(t, f, ticket.Ref, dispatch.FollowOptions{}))
			if want := "RUN_STARTED TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END TOOL_CALL_RESULT RUN_FINISHED"; got != want {
				t.Errorf("got %s", got)
			}
			if again := submit(t, f, newCall(test.tool, test.args, name)); again.New || again.Ref != ticket.Ref {
				t.Errorf("again: %+v", again)
			}
		})
	}
	if n, err := testutil.GatherAndCount(f.Registry, "toolfleet_calls_ended_total"); err != nil || n != 3 {
		t.Errorf("%d kinds of end were counted (%v), want 3", n, err)
	}
	depth, err := f.Queue.Depth(t.Context(), "default")
	if err != nil || depth.Waiting != 0 {
		t.Errorf("depth %+v, %v: a refused call was queued", depth, err)
	}
}

// A dispatcher that died between the admission and the answer leaves a log
// with the answer in it.
func TestRefusalIsCompletedByTheNextSubmit(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	c := newCall("echo", `{oops`, "c1")
	job, refusal := f.Catalog.Check(c, c.Arguments, time.Now())
	job.Refusal = refusal
	if _, err := f.Log.Admit(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	ticket := submit(t, f, c)
	r, err := f.Wait(t.Context(), ticket.Ref)
	if err != nil || r.Kind() != call.KindInvalidArguments {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestMalformedCallsOpenNoLog(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	for name, change := range map[string]func(*call.Call){
		"no thread":        func(c *call.Call) { c.ThreadID = "" },
		"long id":          func(c *call.Call) { c.ToolCallID = strings.Repeat("x", 300) },
		"bad priority":     func(c *call.Call) { c.Priority = "urgent" },
		"negative timeout": func(c *call.Call) { c.Timeout = -1 },
		"timeout above the tool's": func(c *call.Call) {
			c.Timeout = 31 * time.Second
		},
	} {
		c := newCall("echo", `{"text":"x"}`, "c1")
		change(&c)
		if _, err := f.Submit(t.Context(), c); !errors.Is(err, dispatch.ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
		if _, err := f.Status(t.Context(), results.Ref{Tenant: "default", Key: c.Key()}); !errors.Is(err, dispatch.ErrNotFound) {
			t.Errorf("%s: status %v, want ErrNotFound", name, err)
		}
	}
}

func TestLongArgumentsTravelAsABlob(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	f.Work(t, map[string]dispatchtest.Tool{"echo": func(_ context.Context, r *dispatchtest.Running) call.Result {
		return call.Result{Content: []agui.Part{agui.Text(call.Digest(r.Args))}}
	}})
	// Escaped, the text is longer than an event may be; it is cut into pieces
	// between characters.
	args := `{"text":"` + strings.Repeat("é<", 150<<10) + `"}`
	ticket := submit(t, f, newCall("echo", args, "c1"))
	if ticket.Call.ArgumentsBlob == "" || ticket.Call.Arguments != "" {
		t.Errorf("the arguments travel inline")
	}
	r, err := f.Wait(t.Context(), ticket.Ref)
	if err != nil || r.Content[0].Text != call.Digest(args) {
		t.Errorf("the tool got other arguments: %v", err)
	}
	var shown strings.Builder
	for _, ev := range collect(t, f, ticket.Ref, dispatch.FollowOptions{}) {
		if a, ok := ev.Event.(agui.ToolCallArgs); ok {
			if len(a.Delta) > 64<<10 {
				t.Errorf("a delta of %d bytes", len(a.Delta))
			}
			shown.WriteString(a.Delta)
		}
	}
	if shown.String() != args {
		t.Error("the run shows other arguments")
	}
	if again := submit(t, f, newCall("echo", args, "c1")); again.New {
		t.Error("the same call again is new")
	}
}

func TestCancelOfAQueuedCallAnswersAtOnce(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	ticket := submit(t, f, newCall("echo", `{"text":"x"}`, "c1"))
	ended, err := f.Cancel(t.Context(), ticket.Ref, "no longer needed")
	if err != nil || !ended {
		t.Fatalf("ended %v, %v", ended, err)
	}
	r, err := f.Wait(t.Context(), ticket.Ref)
	if err != nil || r.Kind() != call.KindCancelled || !strings.Contains(r.Content[0].Text, "no longer needed") {
		t.Errorf("%+v, %v", r, err)
	}
	depth, err := f.Queue.Depth(t.Context(), "default")
	if err != nil || depth.Waiting != 0 {
		t.Errorf("depth %+v, %v: the job waits on", depth, err)
	}
	evs := collect(t, f, ticket.Ref, dispatch.FollowOptions{})
	want := "RUN_STARTED TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END ACTIVITY_SNAPSHOT ACTIVITY_DELTA TOOL_CALL_RESULT RUN_FINISHED"
	if got := types(evs); got != want {
		t.Errorf("got %s", got)
	}
	if st := lastActivity(t, evs).Status; st != call.StatusCancelled {
		t.Errorf("the activity's last status is %q", st)
	}
	if ended, err = f.Cancel(t.Context(), ticket.Ref, "again"); err != nil || !ended {
		t.Errorf("again: %v, %v", ended, err)
	}
	if _, err := f.Cancel(t.Context(), results.Ref{Tenant: "other", Key: ticket.Key}, ""); !errors.Is(err, dispatch.ErrNotFound) {
		t.Errorf("another tenant's cancel: %v", err)
	}
}

func TestCancelOfARunningCallKeepsItsOutput(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("hang", nil))
	f.Work(t, map[string]dispatchtest.Tool{"hang": hang})
	ticket := submit(t, f, newCall("hang", `{"text":"x"}`, "c1"))
	awaitProgress(t, f, ticket.Ref)
	if _, err := f.Cancel(t.Context(), ticket.Ref, ""); err != nil {
		t.Error(err)
	}
	r, err := f.Wait(t.Context(), ticket.Ref)
	if err != nil || r.Kind() != call.KindCancelled || r.Content[0].Text != "so far" {
		t.Errorf("%+v, %v", r, err)
	}
}

// awaitProgress returns when the tool has said something.
func awaitProgress(t *testing.T, f *dispatchtest.Fleet, ref results.Ref) uint64 {
	t.Helper()
	run, err := f.Follow(t.Context(), ref, dispatch.FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	for {
		ev, err := run.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ev.EventType() == agui.TypeActivityDelta {
			return ev.Seq
		}
	}
}

func TestResumeBeginsWithAWholeSnapshot(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	f.Work(t, map[string]dispatchtest.Tool{"echo": echo})
	ticket := submit(t, f, newCall("echo", `{"text":"hi"}`, "c1"))
	whole := collect(t, f, ticket.Ref, dispatch.FollowOptions{})
	want := lastActivity(t, whole)
	for _, ev := range whole {
		if ev.Seq == 0 {
			continue
		}
		resumed := collect(t, f, ticket.Ref, dispatch.FollowOptions{After: ev.Seq})
		if got := types(resumed); !strings.HasPrefix(got, "RUN_STARTED TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END ACTIVITY_SNAPSHOT ") ||
			!strings.HasSuffix(got, " TOOL_CALL_RESULT RUN_FINISHED") {
			t.Errorf("after %d: %s", ev.Seq, got)
		}
		if diff := cmp.Diff(want, lastActivity(t, resumed)); diff != "" {
			t.Errorf("after %d the activity ends otherwise: %s", ev.Seq, diff)
		}
		if n := len(resumed); n > len(whole) {
			t.Errorf("after %d: %d events, %d in the whole run", ev.Seq, n, len(whole))
		}
	}
	for _, after := range []uint64{1, 1 << 60} { // from before, and out of the blue
		if got := types(collect(t, f, ticket.Ref, dispatch.FollowOptions{After: after})); !strings.HasSuffix(got, " TOOL_CALL_RESULT RUN_FINISHED") {
			t.Errorf("after %d: %s", after, got)
		}
	}
}

// lastActivity applies the activity events of a run.
func lastActivity(t *testing.T, evs []dispatch.RunEvent) call.Activity {
	t.Helper()
	var a call.Activity
	for _, ev := range evs {
		switch ev := ev.Event.(type) {
		case agui.ActivitySnapshot:
			a = decodeActivity(t, ev)
		case agui.ActivityDelta:
			if err := a.Apply(ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	return a
}

func TestOnlyTheCallsOwnBlobsBecomeURLs(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("thief", nil))
	stolen := blob.ID{Tenant: "other", Key: call.MakeKey("other", "t", "s", "c"), N: 1}.String()
	f.Work(t, map[string]dispatchtest.Tool{"thief": func(ctx context.Context, r *dispatchtest.Running) call.Result {
		return call.Result{Content: []agui.Part{
			agui.Media(agui.PartImage, agui.Source{Type: agui.SourceURL, Value: r.Blob(ctx, 1, "image/png", []byte("png"))}),
			agui.Media(agui.PartImage, agui.Source{Type: agui.SourceURL, Value: stolen}),
			agui.Media(agui.PartImage, agui.Source{Type: agui.SourceURL, Value: "https://example.com/x.png"}),
		}}
	}})
	ticket := submit(t, f, newCall("thief", `{"text":"x"}`, "c1"))
	url := func(id blob.ID) string { return "https://public/" + string(id.Key) }
	var got []string
	for _, ev := range collect(t, f, ticket.Ref, dispatch.FollowOptions{BlobURL: url}) {
		if res, ok := ev.Event.(agui.ToolCallResult); ok {
			for _, p := range res.Content.Parts {
				got = append(got, p.Source.Value)
			}
		}
	}
	if diff := cmp.Diff([]string{"https://public/" + string(ticket.Key), stolen, "https://example.com/x.png"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFollowOfNoCall(t *testing.T) {
	f := dispatchtest.New(t)
	ref := results.Ref{Tenant: "default", Key: call.MakeKey("a", "b", "c", "d")}
	if _, err := f.Follow(t.Context(), ref, dispatch.FollowOptions{}); !errors.Is(err, dispatch.ErrNotFound) {
		t.Errorf("follow: %v", err)
	}
	if _, err := f.Wait(t.Context(), ref); !errors.Is(err, dispatch.ErrNotFound) {
		t.Errorf("wait: %v", err)
	}
}

func TestWaitsEndWithTheCauseOfTheirContext(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	ticket := submit(t, f, newCall("echo", `{"text":"x"}`, "c1"))
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, cause)
	defer cancel()
	if _, err := f.Wait(ctx, ticket.Ref); !errors.Is(err, cause) {
		t.Errorf("wait: %v", err)
	}
	if _, err := f.Await(ctx, ticket); !errors.Is(err, cause) {
		t.Errorf("await: %v", err)
	}
	run, err := f.Follow(t.Context(), ticket.Ref, dispatch.FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	for {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, cause)
		_, err := run.Next(ctx)
		cancel()
		if err != nil {
			if !errors.Is(err, cause) {
				t.Errorf("next: %v", err)
			}
			break
		}
	}
	// The run can be read on.
	if _, err := f.Cancel(t.Context(), ticket.Ref, ""); err != nil {
		t.Fatal(err)
	}
	if ev, err := run.Next(t.Context()); err != nil || ev.EventType() != agui.TypeActivityDelta {
		t.Errorf("%v, %v", ev, err)
	}
}

func TestNoBusIsUnavailable(t *testing.T) {
	f := dispatchtest.Alone(t, dispatchtest.Spec("echo", nil))
	f.Timeout = 100 * time.Millisecond
	f.NATS.Shutdown()
	_, err := f.Submit(t.Context(), newCall("echo", `{"text":"x"}`, "c1"))
	if !errors.Is(err, dispatch.ErrUnavailable) || dispatch.RetryAfter(err) <= 0 {
		t.Errorf("%v, retry after %s", err, dispatch.RetryAfter(err))
	}
}

func TestListIsTheTenants(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	submit(t, f, newCall("echo", `{"text":"x"}`, "c1"))
	other := newCall("echo", `{"text":"x"}`, "c2")
	other.Tenant = "other"
	submit(t, f, other)
	list, err := f.List(t.Context(), "other", results.ListOptions{})
	if err != nil || len(list) != 1 || list[0].ToolCallID != "c2" {
		t.Errorf("%+v, %v", list, err)
	}
}

// A dispatcher that kept the arguments and died before the admission leaves a
// blob and no log. The same call goes on from there; other arguments under the
// same ids cannot.
func TestArgumentsOfACallThatWasNeverTaken(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	args := `{"text":"` + strings.Repeat("x", 400<<10) + `"}`
	c := newCall("echo", args, "c1")
	id := blob.ID{Tenant: c.Tenant, Key: c.Key()}
	if _, err := f.Blobs.Put(t.Context(), id, "application/json", []byte(args)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Submit(t.Context(), newCall("echo", `{"text":"`+strings.Repeat("y", 400<<10)+`"}`, "c1")); !errors.Is(err, dispatch.ErrConflict) {
		t.Errorf("other arguments: %v, want ErrConflict", err)
	}
	if ticket := submit(t, f, c); !ticket.New {
		t.Error("the call is known")
	}
}

func TestCancelOfARefusedCallIsItsRefusal(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("echo", nil))
	c := newCall("echo", `{oops`, "c1")
	job, _ := f.Catalog.Check(c, c.Arguments, time.Now())
	if _, err := f.Log.Admit(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	ref := results.Ref{Tenant: c.Tenant, Key: c.Key()}
	if ended, err := f.Cancel(t.Context(), ref, ""); err != nil || !ended {
		t.Fatalf("%v, %v", ended, err)
	}
	if r, err := f.Wait(t.Context(), ref); err != nil || r.Kind() != call.KindInvalidArguments {
		t.Errorf("%+v, %v", r, err)
	}
}

// A cancel races with the worker that starts the tool: one result in any case,
// and no tool runs behind a call that was answered as never started.
func TestCancelRacesWithTheStart(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("hang", nil))
	f.Work(t, map[string]dispatchtest.Tool{"hang": hang})
	for i := range 20 {
		ticket := submit(t, f, newCall("hang", `{"text":"x"}`, fmt.Sprint("c", i)))
		if _, err := f.Cancel(t.Context(), ticket.Ref, ""); err != nil {
			t.Fatal(err)
		}
		evs := collect(t, f, ticket.Ref, dispatch.FollowOptions{})
		st, err := f.Status(t.Context(), ticket.Ref)
		if err != nil || st.Status != call.StatusCancelled {
			t.Fatalf("%+v, %v", st, err)
		}
		ran := st.Result.Execution != nil
		if ran == st.Start.Void {
			t.Errorf("ran %v behind the marker %+v", ran, st.Start)
		}
		if n := strings.Count(types(evs), "TOOL_CALL_RESULT"); n != 1 {
			t.Errorf("%d results", n)
		}
	}
}
