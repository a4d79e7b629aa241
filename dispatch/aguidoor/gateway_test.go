package aguidoor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch/aguidoor"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
)

func TestGatewayIsOneRun(t *testing.T) {
	u := agent(t,
		func(a *round) {
			a.begin()
			a.json(`{"type":"STATE_SNAPSHOT","snapshot":{"n":1}}`)
			a.text("m1", "let me see")
			a.call("m1", "c1", "echo", `{"text":"a"}`)
			a.call("m1", "c2", "echo", `{"text":"b"}`)
			a.json(`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":2}]}`)
			a.json(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q,"usage":[{"inputTokens":1}]}`, a.in.ThreadID, a.in.RunID)
		},
		func(a *round) {
			a.begin()
			a.call("m2", "c3", "rm-rf", `{}`) // the agent's own, or nobody's
			a.say(agui.ToolCallResult{MessageID: "own", ToolCallID: "c3", Content: agui.Content{Text: "no"}})
			a.call("m2", "c4", "echo", `{"text":"c"}`)
			a.finish()
		},
		func(a *round) {
			a.begin()
			a.text("m3", "done")
			a.json(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q,"result":7,"usage":[{"inputTokens":2}]}`, a.in.ThreadID, a.in.RunID)
		},
	)
	d := behind(t, fleet(t, nil), u)
	in := input("thread", "run", user("do it"))
	in.Tools = []agui.Tool{{Name: "confirm", Description: "Asks."}, {Name: "hang", Description: "The client's."}}
	in.ForwardedProps, in.State = json.RawMessage(`{"x":1}`), json.RawMessage(`{"n":0}`)
	s := d.runs(gateway, in)
	s.wantSuccess()
	if s.text("c1") != `{"text":"a"}` || s.text("c2") != `{"text":"b"}` || s.text("c4") != `{"text":"c"}` || s.text("c3") != "no" {
		t.Errorf("\n%s", strings.Join(s.raw, "\n"))
	}
	end := s.last().(agui.RunFinished)
	if n := len(of[agui.RunStarted](s)); n != 1 || end.RunID != "run" || end.ThreadID != "thread" || string(end.Result) != "7" || len(end.Usage) != 2 || *end.Usage[0].InputTokens != 1 || *end.Usage[1].InputTokens != 2 {
		t.Errorf("%d runs, %+v", n, end)
	}

	seen := u.seen()
	if len(seen) != 3 {
		t.Fatalf("%d rounds", len(seen))
	}
	var tools []string
	for _, tool := range seen[0].Tools {
		tools = append(tools, tool.Name+": "+tool.Description)
	}
	want := []string{"confirm: Asks.", "hang: The client's.", "echo: For a test."}
	if !slices.Equal(tools, want) || seen[0].ProtocolVersion != "1.0" || string(seen[0].ForwardedProps) != `{"x":1}` {
		t.Errorf("%v %+v", tools, seen[0])
	}
	if ids := []string{seen[0].RunID, seen[1].RunID, seen[2].RunID}; ids[0] != "run" || ids[0] == ids[1] || ids[1] == ids[2] {
		t.Errorf("rounds %v", ids)
	}
	if string(seen[1].State) != `{"n":2}` {
		t.Errorf("state %s", seen[1].State)
	}
	var history []string
	for _, m := range seen[2].Messages {
		line := string(m.MessageRole()) + " " + m.MessageID()
		switch m := m.(type) {
		case agui.AssistantMessage:
			for _, c := range m.ToolCalls {
				line += " " + c.ID + c.Arguments
			}
		case agui.ToolMessage:
			line = string(m.MessageRole()) + " " + m.ToolCallID
		}
		history = append(history, line)
	}
	wantHistory := []string{
		"user user-do it", `assistant m1 c1{"text":"a"} c2{"text":"b"}`, "tool c1", "tool c2",
		`assistant m2 c3{} c4{"text":"c"}`, "tool c3", "tool c4",
	}
	slices.Sort(history[2:4]) // they ran side by side
	if diff := cmp.Diff(wantHistory, history); diff != "" {
		t.Error(diff)
	}
}

// The client's calls are the client's, and the run finishes with them pending;
// the next run brings the answer.
func TestTC22PendingIsRecomputed(t *testing.T) {
	u := agent(t,
		func(a *round) {
			a.begin()
			a.call("m1", "c1", "echo", `{}`)
			a.call("m1", "u1", "confirm", `{}`)
			a.call("m1", "c2", "echo", `{}`)
			a.call("m1", "u2", "confirm", `{}`)
			a.finish("c1", "u1", "c2", "u2")
		},
		done,
	)
	d := behind(t, fleet(t, nil), u)
	in := input("thread", "run-1", user("do it"))
	in.Tools = []agui.Tool{{Name: "confirm", Description: "Asks."}}
	s := d.runs(gateway, in)
	s.wantSuccess("u1", "u2")
	if len(u.seen()) != 1 {
		t.Errorf("the agent ran %d times", len(u.seen()))
	}
	history := []agui.Message{in.Messages[0], asks("m1", `c1 echo {}`, `u1 confirm {}`, `c2 echo {}`, `u2 confirm {}`)}
	for _, r := range of[agui.ToolCallResult](s) {
		history = append(history, r.Message())
	}
	next, err := agui.Reply(history, agui.Answered("a1", "u1", agui.Content{Text: "yes"}), agui.Failed("a2", "u2", "no", agui.Content{}))
	if err != nil {
		t.Fatal(err)
	}
	in.RunID, in.Messages = "run-2", next
	s = d.runs(gateway, in)
	if s.wantSuccess(); len(of[agui.ToolCallResult](s)) != 0 || len(u.seen()) != 2 {
		t.Errorf("\n%s", strings.Join(s.raw, "\n"))
	}
	// A peer without a version derives the list.
	in.RunID, in.ProtocolVersion, in.Messages = "run-3", "", in.Messages[:1]
	u2 := agent(t, proposes("m1", `u1 confirm {}`))
	s = behind(t, fleet(t, nil), u2).runs(gateway, in)
	s.wantSuccess()
}

// The name in both lists is the client's, in the gateway too.
func TestTC16NameInBothListsIsTheClients(t *testing.T) {
	u := agent(t, proposes("m1", `c1 echo {}`))
	in := input("thread", "run-1", user("do it"))
	in.Tools = []agui.Tool{{Name: "echo", Description: "The client's."}}
	s := behind(t, fleet(t, nil), u).runs(gateway, in)
	s.wantSuccess("c1")
	if len(of[agui.ToolCallResult](s))+len(of[agui.ActivitySnapshot](s)) > 0 {
		t.Errorf("\n%s", strings.Join(s.raw, "\n"))
	}
	if n := len(u.seen()[0].Tools); n != 2 {
		t.Errorf("%d tools", n)
	}
}

// Chunks come out as triads, and nothing of ours stands between the chunks of a
// message: answers come while the agent goes on talking.
func TestTC06ChunksAreRelayedAsTriads(t *testing.T) {
	answered := make(chan struct{})
	u := agent(t,
		func(a *round) {
			a.begin()
			a.json(`{"type":"REASONING_MESSAGE_CHUNK","messageId":"r1","delta":"hm"}`)
			a.json(`{"type":"REASONING_MESSAGE_CHUNK","delta":"m"}`)
			a.json(`{"type":"TOOL_CALL_CHUNK","toolCallId":"c1","toolCallName":"echo","parentMessageId":"m1","delta":"{\"text\":"}`)
			a.json(`{"type":"ACTIVITY_SNAPSHOT","messageId":"a1","activityType":"example.x","content":{}}`)
			a.json(`{"type":"TOOL_CALL_CHUNK","delta":"\"a\"}"}`)
			a.json(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m2","delta":"while"}`)
			select {
			case <-answered: // the answer of c1 is in the stream
			case <-a.r.Context().Done():
			}
			a.json(`{"type":"TEXT_MESSAGE_CHUNK","delta":" it"}`)
			a.json(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m2","delta":" runs"}`)
			a.json(`{"type":"TOOL_CALL_CHUNK","toolCallId":"c2","toolCallName":"echo","delta":"{}"}`)
			a.finish()
		},
		done,
	)
	d := behind(t, fleet(t, nil), u)
	s := d.start(gateway, input("thread", "run-1", user("do it")))
	s.until("result", func(ev agui.Event) bool { return ev.EventType() == agui.TypeToolCallResult })
	close(answered)
	s.rest().wantSuccess()
	if s.text("c1") != `{"text":"a"}` || s.text("c2") != `{}` || strings.Contains(s.types(), "CHUNK") {
		t.Errorf("\n%s", strings.Join(s.raw, "\n"))
	}
	whole := strings.Join(s.raw, "\n")
	for _, want := range []string{
		`"type":"REASONING_MESSAGE_START","messageId":"r1","role":"reasoning"`, `"type":"REASONING_MESSAGE_END","messageId":"r1"`,
		`"type":"TEXT_MESSAGE_START","messageId":"m2","role":"assistant"`, `"delta":" it"`, `"type":"TEXT_MESSAGE_END","messageId":"m2"`,
	} {
		if n := strings.Count(whole, want); n != 1 {
			t.Errorf("%d times %s in\n%s", n, want, whole)
		}
	}
	// The agent finds it in its history as it said it.
	for _, m := range u.seen()[1].Messages {
		if a, ok := m.(agui.AssistantMessage); ok && a.ID == "m2" && (a.Content == nil || *a.Content != "while it runs") {
			t.Errorf("%+v", a)
		}
	}
}

// A call is not acted on before its END.
func TestTC03NothingRunsBeforeTheEndOfACall(t *testing.T) {
	for name, end := range map[string]struct {
		rest func(*round)
		code string
	}{
		"the stream is cut": {func(*round) {}, "agent_cut"},
		"RUN_ERROR":         {func(a *round) { a.say(agui.RunError{Message: "the model is asleep", Code: "asleep"}) }, "asleep"},
		"a conflicting chunk": { // TC-37
			func(a *round) {
				a.json(`{"type":"TOOL_CALL_CHUNK","toolCallId":"c2","toolCallName":"echo","delta":"{}"}`)
				a.json(`{"type":"TOOL_CALL_CHUNK","toolCallId":"c2","toolCallName":"hang"}`)
			}, "agent_sequence",
		},
	} {
		f := fleet(t, nil)
		u := agent(t, func(a *round) {
			a.begin()
			a.say(agui.ToolCallStart{ToolCallID: "c1", ToolCallName: "echo", ParentMessageID: "m1"})
			a.say(agui.ToolCallArgs{ToolCallID: "c1", Delta: `{}`})
			end.rest(a)
		})
		s := behind(t, f, u).runs(gateway, input("thread", "run-1", user("do it")))
		if s.wantError(end.code); len(of[agui.ToolCallResult](s))+len(of[agui.ActivitySnapshot](s)) > 0 {
			t.Errorf("%s:\n%s", name, strings.Join(s.raw, "\n"))
		}
		if list := calls(t, f); len(list) > 0 {
			t.Errorf("%s: %d calls were taken", name, len(list))
		}
	}
}

// A dispatched call keeps its text; a reopen starts nothing, and the answer
// says that it came.
func TestTC04ReopenStartsNothing(t *testing.T) {
	var started atomic.Int32
	release := make(chan struct{})
	f := fleet(t, map[string]dispatchtest.Tool{"slow": func(_ context.Context, r *dispatchtest.Running) call.Result {
		started.Add(1)
		<-release
		return call.Result{Content: []agui.Part{agui.Text(r.Args)}}
	}})
	u := agent(t, func(a *round) {
		a.begin()
		a.call("m1", "c1", "slow", `{"a":1}`)
		a.call("m1", "c1", "slow", `{"b":2}`)
		a.text("m2", "reopened")
		a.finish()
	}, done)
	d := behind(t, f, u)
	s := d.start(gateway, input("thread", "run-1", user("do it")))
	s.until("text after the reopen", func(ev agui.Event) bool { return ev.EventType() == "TEXT_MESSAGE_END" })
	close(release)
	s.rest().wantSuccess()
	var reopened bool
	if ok, err := s.result("c1").Metadata.Get(call.MetaReopened, &reopened); !ok || err != nil || !reopened {
		t.Errorf("%+v", s.result("c1"))
	}
	if s.text("c1") != `{"a":1}` || started.Load() != 1 {
		t.Errorf("%s, started %d times", s.text("c1"), started.Load())
	}
	// What the client has is what ran: its history meets the same call.
	var args string
	for _, e := range of[agui.ToolCallArgs](s) {
		args += e.Delta
	}
	again := d.runs(direct, input("thread", "run-2", asks("m1", "c1 slow "+args)))
	if again.text("c1") != `{"a":1}` || again.result("c1").MessageID != s.result("c1").MessageID || started.Load() != 1 {
		t.Errorf("\n%s", strings.Join(again.raw, "\n"))
	}
}

func TestTC05ReopenThatDisagreesIsRefused(t *testing.T) {
	for field, again := range map[string]agui.ToolCallStart{
		"toolCallName":    {ToolCallID: "c1", ToolCallName: "hang", ParentMessageID: "m1"},
		"parentMessageId": {ToolCallID: "c1", ToolCallName: "echo", ParentMessageID: "m2"},
		"subagentRunId":   {Base: agui.Base{SubagentRunID: "s1"}, ToolCallID: "c1", ToolCallName: "echo", ParentMessageID: "m1"},
	} {
		u := agent(t, func(a *round) {
			a.begin()
			a.json(`{"type":"SUBAGENT_STARTED","subagentRunId":"s1","name":"s"}`)
			a.call("m1", "c1", "echo", `{"a":1}`)
			a.say(again)
			a.finish()
		})
		s := behind(t, fleet(t, nil), u).runs(gateway, input("thread", "run-1", user("do it")))
		if e := s.wantError("agent_sequence"); field != "subagentRunId" && !strings.Contains(e.Message, field) {
			t.Errorf("%q does not name %s", e.Message, field)
		}
		if s.text("c1") != `{"a":1}` { // it was begun, and so it is answered
			t.Errorf("\n%s", strings.Join(s.raw, "\n"))
		}
	}
}

// An agent that dies or talks nonsense ends the run with RUN_ERROR, behind the
// answers of what it had begun.
func TestEveryWayAnAgentFails(t *testing.T) {
	var elsewhere atomic.Int32
	target := agent(t, func(*round) { elsewhere.Add(1) })
	begun := func(then func(*round)) func(*round) {
		return func(a *round) {
			a.begin()
			a.call("m1", "c1", "echo", `{}`)
			then(a)
		}
	}
	for name, test := range map[string]struct {
		round    func(*round)
		code     string
		answered bool
	}{
		"refuses":           {func(a *round) { a.w.WriteHeader(500) }, "agent_refused", false},
		"redirects":         {func(a *round) { http.Redirect(a.w, a.r, target.URL, http.StatusTemporaryRedirect) }, "agent_refused", false},
		"redirects softly":  {func(a *round) { http.Redirect(a.w, a.r, target.URL, http.StatusFound) }, "agent_refused", false},
		"answers in JSON":   {func(a *round) { a.w.Header().Set("Content-Type", "application/json"); a.raw("{}") }, "agent_refused", false},
		"ends at once":      {func(*round) {}, "agent_cut", false},
		"ends too early":    {begun(func(*round) {}), "agent_cut", true},
		"dies":              {begun(func(*round) { panic(http.ErrAbortHandler) }), "agent_cut", true},
		"dies in a frame":   {begun(func(a *round) { a.raw(`data: {"type":"RUN_FI`); panic(http.ErrAbortHandler) }), "agent_cut", true},
		"ends in a frame":   {begun(func(a *round) { a.raw(`data: {"type":"RUN_FI`) }), "agent_malformed", true},
		"sends garbage":     {begun(func(a *round) { a.raw("data: {oops\n\n") }), "agent_malformed", true},
		"sends a list":      {begun(func(a *round) { a.raw("data: []\n\n") }), "agent_malformed", true},
		"sends null":        {begun(func(a *round) { a.json(`{"type":"TOOL_CALL_END","toolCallId":null}`) }), "agent_malformed", true},
		"forgets START":     {begun(func(a *round) { a.say(agui.ToolCallEnd{ToolCallID: "c9"}) }), "agent_sequence", true},
		"forgets END":       {begun(func(a *round) { a.say(agui.ToolCallStart{ToolCallID: "c9", ToolCallName: "x"}); a.finish() }), "agent_sequence", true},
		"forgets RUN_START": {func(a *round) { a.finish() }, "agent_sequence", false},
		"another run":       {func(a *round) { a.say(agui.RunStarted{ThreadID: "thread", RunID: "other"}) }, "agent_sequence", false},
		"another thread":    {func(a *round) { a.say(agui.RunStarted{ThreadID: "other", RunID: "run-1"}) }, "agent_sequence", false},
		"ends another run":  {begun(func(a *round) { a.say(agui.RunFinished{ThreadID: "thread", RunID: "other"}) }), "agent_sequence", true},
		"answers nobody":    {begun(func(a *round) { a.say(agui.ToolCallResult{MessageID: "x", ToolCallID: "c9"}) }), "agent_sequence", true},
		"fails":             {begun(func(a *round) { a.say(agui.RunError{Message: "the model is asleep", Code: "asleep"}) }), "asleep", true},
		"too many calls": {func(a *round) {
			a.begin()
			for i := range 9 {
				a.call("m1", fmt.Sprintf("c%d", i+1), "echo", `{}`)
			}
			a.wait()
		}, "agent_calls", true},
	} {
		t.Run(name, func(t *testing.T) {
			u := agent(t, test.round)
			d := behind(t, fleet(t, nil), u, func(a *aguidoor.Config, _ *httpapi.Config) { a.MaxCalls = 8 })
			s := d.runs(gateway, input("thread", "run-1", user("do it")))
			e := s.wantError(test.code)
			if strings.Contains(e.Message, "127.0.0.1") {
				t.Errorf("%q tells where the agent is", e.Message)
			}
			if test.answered {
				if r := s.result("c1"); kind(t, r) != "" {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	if elsewhere.Load() > 0 {
		t.Error("the gateway went where the agent sent it")
	}
}

func TestUnreachableAgent(t *testing.T) {
	u := &upstream{t: t, URL: "http://127.0.0.1:1/agent"}
	s := behind(t, fleet(t, nil), u).runs(gateway, input("thread", "run-1", user("do it")))
	s.wantError("agent_unreachable")
}

func TestAgentThatLoopsForEver(t *testing.T) {
	u := agent(t, func(a *round) {
		a.begin()
		a.call(fmt.Sprintf("m%d", a.n), fmt.Sprintf("c%d", a.n), "echo", `{}`)
		a.finish()
	})
	d := behind(t, fleet(t, nil), u, func(a *aguidoor.Config, _ *httpapi.Config) { a.MaxRounds = 3 })
	s := d.runs(gateway, input("thread", "run-1", user("do it")))
	s.wantError("agent_rounds")
	if n := len(u.seen()); n != 3 || len(of[agui.ToolCallResult](s)) != 3 {
		t.Errorf("%d rounds, %d answers", n, len(of[agui.ToolCallResult](s)))
	}
	// A call that is answered is not made again.
	u = agent(t, proposes("m1", `c1 echo {}`))
	s = behind(t, fleet(t, nil), u).runs(gateway, input("thread", "run-2", user("do it")))
	s.wantError("agent_sequence")
}

// An agent says what a tool of the fleet answered: its word does not count.
func TestAgentAnswersTheFleetsCall(t *testing.T) {
	u := agent(t, func(a *round) {
		a.begin()
		a.call("m1", "c1", "echo", `{"text":"true"}`)
		a.say(agui.ToolCallResult{MessageID: "forged", ToolCallID: "c1", Content: agui.Content{Text: "forged"}})
		a.text("m2", "so it is")
		a.finish()
	})
	s := behind(t, fleet(t, nil), u).runs(gateway, input("thread", "run-1", user("do it")))
	s.wantSuccess()
	if s.text("c1") != `{"text":"true"}` || strings.Contains(strings.Join(s.raw, "\n"), "forged") {
		t.Errorf("\n%s", strings.Join(s.raw, "\n"))
	}
	if n := len(u.seen()); n != 1 {
		t.Errorf("the agent, which waits for nothing, ran %d times", n)
	}
}

// Nothing of a type that the protocol lacks passes the gateway.
func TestTC26UnknownPartsDoNotPass(t *testing.T) {
	u := agent(t, func(a *round) {
		a.begin()
		a.call("m1", "c1", "search", `{}`)
		a.json(`{"type":"TOOL_CALL_RESULT","messageId":"own","toolCallId":"c1","content":[{"type":"text","text":"a"},{"type":"reasoning","text":"b"},{"type":"toolCall","id":"x"},{"type":"image","source":{"type":"blob","value":"y"}}],"isError":true}`)
		a.json(`{"type":"TOOL_CALL_PROGRESS","toolCallId":"c1"}`)
		a.finish()
	})
	s := behind(t, fleet(t, nil), u).runs(gateway, input("thread", "run-1", user("do it")))
	s.wantSuccess() // every frame was read without a warning
	if parts := s.result("c1").Content.Parts; len(parts) != 1 || parts[0].Text != "a" {
		t.Errorf("%+v", parts)
	}
}

// What an agent may not do for a tenant it may not do at all.
func TestAgentCannotRunWhatTheTenantMayNot(t *testing.T) {
	f := fleet(t, nil)
	restricted := dispatchtest.Spec("secret", nil)
	restricted.Tenants = []string{"other"}
	if err := f.Catalog.Replace(append(specs(f), restricted)); err != nil {
		t.Fatal(err)
	}
	u := agent(t, proposes("m1", `c1 secret {"text":"x"}`))
	s := behind(t, f, u).runs(gateway, input("thread", "run-1", user("do it")))
	s.wantSuccess("c1") // nobody's call, and nobody answers it
	if list := calls(t, f); len(list) > 0 || len(u.seen()[0].Tools) != 2 {
		t.Errorf("%v", list)
	}
	// The messages of a client cannot either.
	s = behind(t, f, u).runs(direct, input("thread", "run-2", asks("m1", `c1 secret {"text":"x"}`)))
	if kind(t, s.result("c1")) != call.KindUnknownTool {
		t.Errorf("\n%s", strings.Join(s.raw, "\n"))
	}
}

// Ids of the fleet's messages can be worked out; an agent that takes one is
// shown the door, and cannot paint the progress of a call.
func TestAgentCannotPaintTheFleetsProgress(t *testing.T) {
	key := call.MakeKey("default", "thread", "m1", "c1")
	u := agent(t, func(a *round) {
		a.begin()
		a.call("m1", "c1", "echo", `{}`)
		a.say(call.Activity{ToolCallID: "c1", ToolName: "echo", Status: call.StatusSucceeded}.Snapshot(key))
		a.wait()
	})
	s := behind(t, fleet(t, nil), u).runs(gateway, input("thread", "run-1", user("do it")))
	s.wantError("agent_sequence")
	s.result("c1")
}

// A history that a broken connection left has calls that the gateway began:
// they are met, answered, and the agent hears of it.
func TestGatewayMeetsWhatItBegan(t *testing.T) {
	var started atomic.Int32
	release := make(chan struct{})
	f := fleet(t, map[string]dispatchtest.Tool{"slow": func(ctx context.Context, r *dispatchtest.Running) call.Result {
		started.Add(1)
		r.Update("begun", 1)
		<-release
		return call.Result{Content: []agui.Part{agui.Text("once")}}
	}})
	u := agent(t, proposes("", `c1 slow {}`), done)
	d := behind(t, f, u)
	ctx, cancel := context.WithCancel(t.Context())
	s := d.startWith(ctx, gateway, input("thread", "run-1", user("do it")))
	s.until("progress", isProgress)
	cancel()
	close(release)
	// A call without a parent makes a message with its own id.
	s = d.runs(gateway, input("thread", "run-2", user("do it"), asks("c1", `c1 slow {}`)))
	s.wantSuccess()
	if s.text("c1") != "once" || started.Load() != 1 {
		t.Errorf("%s, started %d times", s.text("c1"), started.Load())
	}
	seen := u.seen()
	if last := seen[len(seen)-1]; len(last.Messages) != 3 || last.Messages[2].MessageRole() != agui.RoleTool {
		t.Errorf("%+v", last.Messages)
	}
}

// An error result is a message with an error to the agent.
func TestTC47TheAgentHearsOfErrors(t *testing.T) {
	u := agent(t, proposes("m1", `c1 echo {oops`), done)
	s := behind(t, fleet(t, nil), u).runs(gateway, input("thread", "run-1", user("do it")))
	s.wantSuccess()
	answer := u.seen()[1].Messages[2].(agui.ToolMessage)
	if answer.Error == "" || answer.Content.Text != s.text("c1") {
		t.Errorf("%+v", answer)
	}
}

// A snapshot that the agent made before it knew of an answer keeps the answer.
func TestSnapshotKeepsTheAnswers(t *testing.T) {
	answered := make(chan struct{})
	u := agent(t, func(a *round) {
		a.begin()
		a.call("m1", "c1", "echo", `{}`)
		select {
		case <-answered:
		case <-a.r.Context().Done():
		}
		a.json(`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"user-do it","role":"user","content":"do it"},` +
			`{"id":"m1","role":"assistant","toolCalls":[{"id":"c1","type":"function","function":{"name":"echo","arguments":"{}"}}]},{"id":"m2","role":"assistant","content":"x"}]}`)
		a.finish()
	}, done)
	d := behind(t, fleet(t, nil), u)
	s := d.start(gateway, input("thread", "run-1", user("do it")))
	s.until("result", func(ev agui.Event) bool { return ev.EventType() == agui.TypeToolCallResult })
	close(answered)
	s.rest().wantSuccess()
	for _, ev := range of[agui.Other](s) {
		if ev.Type != "MESSAGES_SNAPSHOT" {
			continue
		}
		var snapshot struct {
			Messages []struct{ ID, Role, ToolCallID string }
		}
		if err := json.Unmarshal(ev.JSON, &snapshot); err != nil {
			t.Fatal(err)
		}
		if m := snapshot.Messages; len(m) != 4 || m[2].ToolCallID != "c1" || m[2].ID != s.result("c1").MessageID {
			t.Errorf("%+v", m)
		}
	}
	if n := len(agui.PendingCalls(u.seen()[1].Messages)); n != 0 {
		t.Errorf("%d calls pend in the next round", n)
	}
}

func TestOutcomesOfTheAgentPass(t *testing.T) {
	interrupt := agui.Outcome{Type: agui.OutcomeInterrupt, Interrupts: []agui.Interrupt{{ID: "i1", Reason: "asks"}}}
	for _, want := range []agui.Outcome{interrupt, {Type: agui.OutcomeCancelled}} {
		u := agent(t, func(a *round) {
			a.begin()
			a.call("m1", "c1", "echo", `{}`)
			a.say(agui.RunFinished{ThreadID: a.in.ThreadID, RunID: a.in.RunID, Outcome: &want})
		})
		s := behind(t, fleet(t, nil), u).runs(gateway, input("thread", "run-1", user("do it")))
		end, ok := s.last().(agui.RunFinished)
		if !ok || cmp.Diff(&want, end.Outcome) != "" || s.text("c1") == "" || len(u.seen()) != 1 {
			t.Errorf("%s:\n%s", want.Type, strings.Join(s.raw, "\n"))
		}
	}
}

// Nothing of the client's request reaches the agent but the input, and what the
// headers file says does.
func TestCredentialsStayApart(t *testing.T) {
	u := agent(t, done)
	d := open(t, fleet(t, nil), func(a *aguidoor.Config, h *httpapi.Config) {
		a.Agents = []aguidoor.Agent{
			{Name: "planner", URL: u.URL, Header: http.Header{"Authorization": {"Bearer upstream"}}},
			{Name: "theirs", URL: u.URL, Tenants: []string{"other"}},
		}
		h.TokenFile = tokens(t, "acme acme-token-0123456789", "other other-token-0123456789")
	})
	d.header.Set("Authorization", "Bearer acme-token-0123456789")
	d.header.Set("Cookie", "a=b")
	d.runs(gateway, input("thread", "run-1", user("do it"))).wantSuccess()
	h := u.header[0]
	if h.Get("Authorization") != "Bearer upstream" || h.Get("Cookie") != "" || h.Get("Accept") != "text/event-stream" {
		t.Errorf("%v", h)
	}
	for _, name := range []string{"theirs", "nobody"} {
		if a := d.do(http.MethodPost, "/agui/agents/"+name+"/run", `{"threadId":"t","runId":"r","messages":[]}`); a.Status != http.StatusNotFound {
			t.Errorf("%s: %d", name, a.Status)
		}
	}
}
