package aguidoor_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

// mixed is an input with calls of the fleet and of the client.
func mixed(run string) agui.RunAgentInput {
	in := input("thread", run, user("do it"), asks("m1", `ui1 confirm {}`, `c1 echo {"text":"a"}`, `ui2 pick {}`, `c2 echo {"text":"b"}`))
	in.Tools = []agui.Tool{{Name: "confirm", Description: "Asks."}, {Name: "pick", Description: "Picks."}}
	return in
}

// bothDoors runs the same four calls through both doors: once a history holds
// them, once an agent makes them in the run.
func bothDoors(t *testing.T, check func(t *testing.T, s *stream)) {
	t.Helper()
	t.Run("direct", func(t *testing.T) { check(t, open(t, fleet(t, nil)).runs(direct, mixed("run-1"))) })
	t.Run("gateway", func(t *testing.T) {
		u := agent(t, func(a *round) {
			a.begin()
			a.call("m1", "ui1", "confirm", `{}`)
			a.call("m1", "c1", "echo", `{"text":"a"}`)
			a.call("m1", "ui2", "pick", `{}`)
			a.call("m1", "c2", "echo", `{"text":"b"}`)
			a.finish()
		})
		in := mixed("run-1")
		in.Messages = in.Messages[:1]
		check(t, behind(t, fleet(t, nil), u).runs(gateway, in))
	})
}

func TestTC17OpenClientCallsAreASuccess(t *testing.T) {
	bothDoors(t, func(t *testing.T, s *stream) {
		if end, ok := s.last().(agui.RunFinished); !ok || end.Outcome != nil && end.Outcome.Type != agui.OutcomeSuccess {
			t.Errorf("the run ends with %+v", s.last())
		}
	})
}

func TestTC18OpenClientCallsAreNoInterrupt(t *testing.T) {
	bothDoors(t, func(t *testing.T, s *stream) {
		for _, line := range s.raw {
			if strings.Contains(line, "interrupt") {
				t.Errorf("%s", line)
			}
		}
	})
}

// The end follows the last answer: nothing waits for the client's.
func TestTC19RunEndsWithItsLastAnswer(t *testing.T) {
	bothDoors(t, func(t *testing.T, s *stream) {
		if before := s.events[len(s.events)-2]; before.EventType() != agui.TypeToolCallResult {
			t.Errorf("%s stands between the last answer and the end", before.EventType())
		}
	})
}

func TestTC20SeveralClientCallsStayOpen(t *testing.T) {
	bothDoors(t, func(t *testing.T, s *stream) {
		for _, r := range of[agui.ToolCallResult](s) {
			if strings.HasPrefix(r.ToolCallID, "ui") {
				t.Errorf("the client's call %s was answered", r.ToolCallID)
			}
		}
		if s.text("c1") != `{"text":"a"}` || s.text("c2") != `{"text":"b"}` {
			t.Errorf("\n%s", strings.Join(s.raw, "\n"))
		}
	})
}

// An agent that dies leaves no call of the fleet without its answer.
func TestTC11CallsOfADyingAgentAreAnswered(t *testing.T) {
	for name, end := range map[string]func(*round){
		"cut":     func(*round) {},
		"failed":  func(a *round) { a.say(agui.RunError{Message: "the model is asleep"}) },
		"garbage": func(a *round) { a.raw("data: {oops\n\n") },
	} {
		u := agent(t, func(a *round) {
			a.begin()
			a.call("m1", "c1", "echo", `{"text":"a"}`)
			a.call("m1", "c2", "echo", `{oops`)
			end(a)
		})
		s := behind(t, fleet(t, nil), u).runs(gateway, input("thread", "run-"+name, user("do it")))
		if s.text("c1") != `{"text":"a"}` || kind(t, s.result("c2")) != call.KindInvalidArguments {
			t.Errorf("%s:\n%s", name, strings.Join(s.raw, "\n"))
		}
	}
}

func TestTC51OwnToolsNeedNoAdvertising(t *testing.T) {
	d := open(t, fleet(t, nil))
	for _, tools := range [][]agui.Tool{nil, {}} {
		in := input("thread", "run-1", asks("m1", `c1 echo {"text":"a"}`))
		in.Tools = tools
		s := d.runs(direct, in)
		if s.wantSuccess(); kind(t, s.result("c1")) != "" {
			t.Errorf("\n%s", strings.Join(s.raw, "\n"))
		}
	}
}

// What a client has to say while its run goes on, it says by another request.
func TestTC54CancelHasItsOwnAPI(t *testing.T) {
	d := open(t, fleet(t, nil))
	s := d.start(direct, input("thread", "run-1", asks("m1", `c1 hang {}`)))
	s.until("progress", isProgress)
	if a := d.do(http.MethodDelete, "/agui/threads/thread/runs/run-1", ""); a.Status != http.StatusAccepted {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	s.rest()
	if end, ok := s.last().(agui.RunFinished); !ok || end.Outcome == nil || end.Outcome.Type != agui.OutcomeCancelled {
		t.Errorf("\n%s", strings.Join(s.raw, "\n"))
	}
}

func TestLX03RunEchoesTheInputsIDs(t *testing.T) {
	d := open(t, fleet(t, nil))
	for _, ids := range [][2]string{{"thread", "run-1"}, {"a/thread ☃", `"run"`}} {
		s := d.runs(direct, input(ids[0], ids[1], asks("m1", `c1 echo {}`)))
		begin, end := s.events[0].(agui.RunStarted), s.last().(agui.RunFinished)
		if begin.ThreadID != ids[0] || begin.RunID != ids[1] || end.ThreadID != ids[0] || end.RunID != ids[1] {
			t.Errorf("%+v … %+v", begin, end)
		}
	}
}

func TestLX04CancelledRunIsCancelled(t *testing.T) {
	d := open(t, fleet(t, nil))
	for version, want := range map[string]string{"1.0": agui.OutcomeCancelled, "": "RUN_ERROR"} {
		run := "run " + version
		in := input("thread", run, asks("m"+version, `c1 hang {}`, `c2 hang {}`))
		in.ProtocolVersion = version
		s := d.start(direct, in)
		s.until("progress", isProgress)
		if a := d.do(http.MethodDelete, "/agui/threads/thread/runs/"+strings.ReplaceAll(run, " ", "%20"), ""); a.Status != http.StatusAccepted {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		s.rest()
		got := string(s.last().EventType())
		if end, ok := s.last().(agui.RunFinished); ok && end.Outcome != nil {
			if got = end.Outcome.Type; end.Result != nil {
				t.Errorf("a cancelled run has the result %s", end.Result)
			}
		}
		if got != want {
			t.Errorf("version %q: the run ended with %s, want %s", version, got, want)
		}
		s.result("c1") // answered, both of them, before the end
		s.result("c2")
	}
}
