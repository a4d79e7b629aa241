package aguidoor_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
)

// mixed is an input with calls of the fleet and of the client.
func mixed(run string) agui.RunAgentInput {
	in := input("thread", run, user("do it"), asks("m1", `ui1 confirm {}`, `c1 echo {"text":"a"}`, `ui2 pick {}`, `c2 echo {"text":"b"}`))
	in.Tools = []agui.Tool{{Name: "confirm", Description: "Asks."}, {Name: "pick", Description: "Picks."}}
	return in
}

func TestTC17OpenClientCallsAreASuccess(t *testing.T) {
	d := open(t, fleet(t, nil))
	end, ok := d.runs(direct, mixed("run-1")).last().(agui.RunFinished)
	if !ok || end.Outcome != nil && end.Outcome.Type != agui.OutcomeSuccess {
		t.Errorf("the run ends with %+v", end)
	}
}

func TestTC18OpenClientCallsAreNoInterrupt(t *testing.T) {
	d := open(t, fleet(t, nil))
	s := d.runs(direct, mixed("run-1"))
	for _, line := range s.raw {
		if strings.Contains(line, "interrupt") {
			t.Errorf("%s", line)
		}
	}
}

// The end follows the last answer: nothing waits for the client's.
func TestTC19RunEndsWithItsLastAnswer(t *testing.T) {
	d := open(t, fleet(t, nil))
	s := d.runs(direct, mixed("run-1"))
	before := s.events[len(s.events)-2]
	if _, ok := before.(agui.ToolCallResult); !ok {
		t.Errorf("%s stands between the last answer and the end", before.EventType())
	}
}

func TestTC20SeveralClientCallsStayOpen(t *testing.T) {
	d := open(t, fleet(t, nil))
	s := d.runs(direct, mixed("run-1"))
	for _, r := range of[agui.ToolCallResult](s) {
		if strings.HasPrefix(r.ToolCallID, "ui") {
			t.Errorf("the client's call %s was answered", r.ToolCallID)
		}
	}
	for _, e := range of[agui.ToolCallEnd](s) {
		t.Errorf("the call %s was closed", e.ToolCallID)
	}
	if len(of[agui.ToolCallResult](s)) != 2 {
		t.Errorf("\n%s", strings.Join(s.raw, "\n"))
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
