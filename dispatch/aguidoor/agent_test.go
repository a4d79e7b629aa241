package aguidoor_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/dispatch/aguidoor"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
)

// upstream is an agent for the gateway: a script for each round, the last one
// again for all that follow.
type upstream struct {
	t      testing.TB
	URL    string
	rounds []func(*round)

	mu     sync.Mutex
	inputs []agui.RunAgentInput
	header []http.Header
}

// round is one request to the agent.
type round struct {
	t  testing.TB
	n  int
	in agui.RunAgentInput
	w  http.ResponseWriter
	r  *http.Request
}

func agent(t testing.TB, rounds ...func(*round)) *upstream {
	t.Helper()
	u := &upstream{t: t, rounds: rounds}
	server := httptest.NewServer(u)
	u.URL = server.URL + "/agent"
	t.Cleanup(server.Close)
	return u
}

// ServeHTTP implements http.Handler.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		u.t.Error(err)
	}
	in, warnings, err := agui.DecodeInput(body)
	if err != nil || len(warnings) > 0 {
		u.t.Errorf("input of the agent: %v %v: %s", err, warnings, body)
	}
	u.mu.Lock()
	u.inputs = append(u.inputs, in)
	u.header = append(u.header, r.Header)
	n := len(u.inputs)
	u.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	u.rounds[min(n, len(u.rounds))-1](&round{u.t, n, in, w, r})
}

// seen are the inputs so far.
func (u *upstream) seen() []agui.RunAgentInput {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]agui.RunAgentInput(nil), u.inputs...)
}

// say sends an event.
func (a *round) say(ev agui.Event) {
	data, err := agui.Encode(ev)
	if err != nil {
		a.t.Errorf("the agent: %v", err)
	}
	a.raw("data: " + string(data) + "\n\n")
}

// json sends an event in its own spelling.
func (a *round) json(format string, args ...any) {
	a.raw("data: " + fmt.Sprintf(format, args...) + "\n\n")
}

func (a *round) raw(text string) {
	_, _ = io.WriteString(a.w, text) // the gateway may have gone
	_ = http.NewResponseController(a.w).Flush()
}

func (a *round) begin() {
	a.say(agui.RunStarted{ThreadID: a.in.ThreadID, RunID: a.in.RunID, ProtocolVersion: "1.0"})
}

func (a *round) finish(pending ...string) {
	f := agui.RunFinished{ThreadID: a.in.ThreadID, RunID: a.in.RunID}
	if len(pending) > 0 {
		f.Outcome = &agui.Outcome{Type: agui.OutcomeSuccess, PendingToolCallIDs: pending}
	}
	a.say(f)
}

// call proposes a call.
func (a *round) call(parent, id, tool, args string) {
	a.say(agui.ToolCallStart{ToolCallID: id, ToolCallName: tool, ParentMessageID: parent})
	a.say(agui.ToolCallArgs{ToolCallID: id, Delta: args})
	a.say(agui.ToolCallEnd{ToolCallID: id})
}

// text says something.
func (a *round) text(id, text string) {
	a.json(`{"type":"TEXT_MESSAGE_START","messageId":%q,"role":"assistant"}`, id)
	delta, _ := json.Marshal(text)
	a.json(`{"type":"TEXT_MESSAGE_CONTENT","messageId":%q,"delta":%s}`, id, delta)
	a.json(`{"type":"TEXT_MESSAGE_END","messageId":%q}`, id)
}

// wait holds the request until the gateway ends it.
func (a *round) wait() { <-a.r.Context().Done() }

// done answers and ends.
func done(a *round) {
	a.begin()
	a.text(fmt.Sprintf("said-%d", a.n), "done")
	a.finish()
}

// proposes is a round that makes calls, "id tool arguments" each.
func proposes(parent string, calls ...string) func(*round) {
	return func(a *round) {
		a.begin()
		for _, c := range asks(parent, calls...).(agui.AssistantMessage).ToolCalls {
			a.call(parent, c.ID, c.Name, c.Arguments)
		}
		a.finish()
	}
}

const gateway = "/agui/agents/planner/run"

// behind opens a door with a gateway to the agent.
func behind(t testing.TB, f *dispatchtest.Fleet, u *upstream, changes ...func(*aguidoor.Config, *httpapi.Config)) *door {
	t.Helper()
	return open(t, f, append([]func(*aguidoor.Config, *httpapi.Config){func(a *aguidoor.Config, _ *httpapi.Config) {
		a.Agents = []aguidoor.Agent{{Name: "planner", URL: u.URL, Silence: 20 * time.Second}}
	}}, changes...)...)
}
