package aguidoor_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch/aguidoor"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
)

// isProgress tells that a tool runs.
func isProgress(ev agui.Event) bool { return ev.EventType() == agui.TypeActivityDelta }

// wantCancelled checks that the run ended as cancelled, and nothing more.
func (s *stream) wantCancelled() {
	s.t.Helper()
	end, ok := s.last().(agui.RunFinished)
	if !ok || end.Outcome == nil || end.Outcome.Type != agui.OutcomeCancelled || end.Outcome.PendingToolCallIDs != nil || end.Result != nil {
		s.t.Errorf("not cancelled:\n%s", strings.Join(s.raw, "\n"))
	}
}

func TestCancelByAnyDispatcher(t *testing.T) {
	f := fleet(t, nil)
	here, there := open(t, f), open(t, f.Second(t))
	s := here.start(direct, input("a/thread", "run 1", asks("m1", `c1 hang {}`, `c2 echo {}`)))
	s.until("progress of the hanging tool", isProgress)
	a := there.do(http.MethodDelete, "/agui/threads/a%2Fthread/runs/run%201?reason=enough", "")
	if a.Status != http.StatusAccepted || !strings.Contains(a.Body, "cancelling") {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.rest().wantCancelled()
	if r := s.result("c1"); kind(t, r) != call.KindCancelled || !strings.Contains(s.text("c1"), "so far") {
		t.Errorf("%+v", r)
	}
	s.result("c2")
	// There is nothing left, and asking again is no error.
	if a := there.do(http.MethodDelete, "/agui/threads/a%2Fthread/runs/run%201", ""); a.Status != http.StatusOK || !strings.Contains(a.Body, "ended") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// A run that met calls of an earlier one cancels them too: its stream knows
// them.
func TestCancelOfCallsMetAgain(t *testing.T) {
	f := fleet(t, nil)
	d := open(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	history := asks("m1", `c1 hang {}`)
	d.startWith(ctx, direct, input("thread", "run-1", history)).until("progress", isProgress)
	cancel()
	s := d.start(direct, input("thread", "run-2", history))
	s.until("activity", func(ev agui.Event) bool { return ev.EventType() == agui.TypeActivitySnapshot })
	if a := d.do(http.MethodDelete, "/agui/threads/thread/runs/run-2", ""); a.Status != http.StatusAccepted {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.rest().wantCancelled()
	if kind(t, s.result("c1")) != call.KindCancelled {
		t.Errorf("%+v", s.result("c1"))
	}
}

// The calls of a run whose stream is gone are found by their log.
func TestCancelOfARunWithoutAStream(t *testing.T) {
	f := fleet(t, nil)
	here, there := open(t, f), open(t, f.Second(t))
	ctx, cancel := context.WithCancel(t.Context())
	history := asks("m1", `c1 hang {}`, `c2 hang {}`)
	here.startWith(ctx, direct, input("thread", "run-1", history)).until("progress", isProgress)
	cancel()
	here.stop() // and so is its dispatcher
	if a := there.do(http.MethodDelete, "/agui/threads/thread/runs/run-1", ""); a.Status != http.StatusAccepted && a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s := there.runs(direct, input("thread", "run-2", history))
	if kind(t, s.result("c1")) != call.KindCancelled || kind(t, s.result("c2")) != call.KindCancelled {
		t.Errorf("\n%s", strings.Join(s.raw, "\n"))
	}
}

func TestCancelOfNothing(t *testing.T) {
	f := fleet(t, nil)
	d := open(t, f, func(_ *aguidoor.Config, h *httpapi.Config) {
		h.TokenFile = tokens(t, "acme acme-token-0123456789", "other other-token-0123456789")
	})
	d.header.Set("Authorization", "Bearer acme-token-0123456789")
	s := d.start(direct, input("thread", "run-1", asks("m1", `c1 hang {}`)))
	s.until("progress", isProgress)
	for path, header := range map[string]string{
		"/agui/threads/thread/runs/run-2":   "Authorization: Bearer acme-token-0123456789",
		"/agui/threads/other/runs/run-1":    "Authorization: Bearer acme-token-0123456789",
		"/agui/threads/thread/runs/run-1":   "Authorization: Bearer other-token-0123456789", // another tenant's
		"/agui/threads/thread/runs/r%00%2e": "Authorization: Bearer acme-token-0123456789",
	} {
		if a := d.do(http.MethodDelete, path, "", header); a.Status != http.StatusNotFound || a.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	if a := d.do(http.MethodDelete, "/agui/threads/thread/runs/run-1?reason="+strings.Repeat("x", 201), ""); a.Status != http.StatusBadRequest {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := d.do(http.MethodDelete, "/agui/threads/thread/runs/run-1", ""); a.Status != http.StatusAccepted {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	s.rest().wantCancelled()
}

// An older client has no word for cancelled, and success it was not.
func TestCancelForOlderClients(t *testing.T) {
	d := open(t, fleet(t, nil))
	in := input("thread", "run-1", asks("m1", `c1 hang {}`))
	in.ProtocolVersion = ""
	s := d.start(direct, in)
	s.until("progress", isProgress)
	d.do(http.MethodDelete, "/agui/threads/thread/runs/run-1", "")
	s.rest().wantError("cancelled")
	if kind(t, s.result("c1")) != call.KindCancelled {
		t.Errorf("%+v", s.result("c1"))
	}
}

// What an agent has opened is closed when its run is cancelled, and its request
// ended; a call of the fleet's that was not complete is answered and not run.
func TestCancelClosesWhatTheAgentOpened(t *testing.T) {
	f := fleet(t, nil)
	gone := make(chan struct{})
	u := agent(t, func(a *round) {
		a.begin()
		a.json(`{"type":"STEP_STARTED","stepName":"thinking"}`)
		a.json(`{"type":"REASONING_START","messageId":"r1"}`)
		a.json(`{"type":"REASONING_MESSAGE_START","messageId":"r2","role":"reasoning"}`)
		a.call("m1", "c1", "hang", `{}`)
		a.say(agui.ToolCallStart{ToolCallID: "c2", ToolCallName: "echo", ParentMessageID: "m1"})
		a.say(agui.ToolCallStart{ToolCallID: "u1", ToolCallName: "confirm", ParentMessageID: "m1"})
		a.json(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m2","delta":"well"}`)
		a.wait()
		close(gone)
	})
	d := behind(t, f, u)
	in := input("thread", "run-1", user("do it"))
	in.Tools = []agui.Tool{{Name: "confirm", Description: "Asks."}}
	s := d.start(gateway, in)
	s.until("text", func(ev agui.Event) bool { return ev.EventType() == "TEXT_MESSAGE_CONTENT" })
	if a := d.do(http.MethodDelete, "/agui/threads/thread/runs/run-1", ""); a.Status != http.StatusAccepted {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.rest().wantCancelled() // the verifier has seen that everything is closed
	<-gone
	if kind(t, s.result("c1")) != call.KindCancelled || kind(t, s.result("c2")) != call.KindCancelled {
		t.Errorf("\n%s", strings.Join(s.raw, "\n"))
	}
	if n := len(of[agui.ToolCallResult](s)); n != 2 || len(calls(t, f)) != 1 {
		t.Errorf("%d answers", n)
	}
}

// How a subagent ended is not ours to say: the run ends with RUN_ERROR.
func TestCancelInsideASubagent(t *testing.T) {
	u := agent(t, func(a *round) {
		a.begin()
		a.json(`{"type":"SUBAGENT_STARTED","subagentRunId":"s1","name":"helper"}`)
		a.json(`{"type":"STEP_STARTED","stepName":"x","subagentRunId":"s1"}`)
		a.wait()
	})
	d := behind(t, fleet(t, nil), u)
	s := d.start(gateway, input("thread", "run-1", user("do it")))
	s.until("step", func(ev agui.Event) bool { return ev.EventType() == "STEP_STARTED" })
	d.do(http.MethodDelete, "/agui/threads/thread/runs/run-1", "")
	s.rest().wantError("cancelled")
}

// A cancel between the rounds starts no further one.
func TestCancelBetweenRounds(t *testing.T) {
	u := agent(t, proposes("m1", `c1 hang {}`))
	d := behind(t, fleet(t, nil), u)
	s := d.start(gateway, input("thread", "run-1", user("do it")))
	s.until("progress", isProgress)
	d.do(http.MethodDelete, "/agui/threads/thread/runs/run-1", "")
	s.rest().wantCancelled()
	if n := len(u.seen()); n != 1 {
		t.Errorf("%d rounds", n)
	}
}
