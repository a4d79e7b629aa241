package aguidoor

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch"
	"github.com/toolfleet/toolfleet/internal/problem"
)

// The codes of RUN_ERROR that say what the gateway does not go along with.
const (
	codeRounds = "agent_rounds"
	codeCalls  = "agent_calls"
)

// gateway is POST /agui/agents/{name}/run.
func (d *Door) gateway(w http.ResponseWriter, r *http.Request) {
	agent := d.agents[r.PathValue("name")]
	if agent == nil || !agent.serves(dispatch.CallerOf(r.Context()).Tenant) {
		problem.Write(w, http.StatusNotFound, "There is no such agent.")
		return
	}
	in, ok := d.decode(w, r)
	if !ok {
		return
	}
	s, err := d.open(r, in)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	defer s.close()
	g := newRelay(s, agent)
	left, ok := d.bounded(w, agui.PendingCalls(in.Messages), func(c agui.ToolCall) bool { return g.fleet[c.Name] })
	if !ok {
		return
	}
	if err := g.meet(left); err != nil {
		d.fail(w, r, err)
		return
	}
	if err = s.begin(w); err == nil {
		err = g.run()
	}
	s.end(g.last(), err)
}

// relay is a run of the gateway. Like its session it belongs to one goroutine.
type relay struct {
	*session
	agent *Agent
	// tools is what the agent is told of, and fleet which of them are ours.
	tools []agui.Tool
	fleet map[string]bool
	// thread is what the agent sees in its next round.
	thread    *agui.Thread
	assembler agui.Assembler
	closing   closing
	// answers are those that the fleet gave in this run.
	answers []agui.ToolCallResult

	// Of the round:
	ended  *agui.RunFinished // how the agent ended it
	asked  map[string]bool   // calls that the agent wants the fleet's answers of
	reopen map[string]bool   // calls that are open again

	// ids are those of the messages that the fleet's calls make.
	ids      map[string]bool
	usage    []agui.TokenUsage // of all rounds
	warnings atomic.Int32
}

func newRelay(s *session, agent *Agent) *relay {
	g := &relay{
		session: s, agent: agent, tools: slices.Clip(s.input.Tools), fleet: map[string]bool{},
		thread: agui.NewThread(s.input), ids: map[string]bool{},
	}
	s.shown = g.note
	for _, spec := range s.door.config.Tools.List(s.calls.run.Tenant) {
		if spec.Type == catalog.TypeServer || s.input.Advertises(spec.Name) {
			continue // the provider's, or the client's
		}
		g.fleet[spec.Name] = true
		g.tools = append(g.tools, agui.Tool{Name: spec.Name, Description: describe(spec), Parameters: spec.Parameters})
	}
	return g
}

// describe is what a model is told of a tool.
func describe(s *catalog.Spec) string {
	if s.UseWhen == "" {
		return s.Description
	}
	return s.Description + "\n\nUse when: " + s.UseWhen
}

// meet begins the calls that the messages leave unanswered, of a run before
// whose connection broke.
func (g *relay) meet(left []agui.ToolCall) error {
	for _, tc := range left {
		g.reserve(tc)
	}
	return g.calls.beginAll(left)
}

// reserve keeps the ids of what the fleet says about a call to the fleet.
func (g *relay) reserve(tc agui.ToolCall) {
	key := g.calls.of(tc).Key()
	g.ids[key.ResultMessageID()], g.ids[key.ActivityMessageID()] = true, true
}

// note follows what the client sees.
func (g *relay) note(ev agui.Event) error {
	g.closing.note(ev)
	if res, ok := ev.(agui.ToolCallResult); ok && g.calls.known[res.ToolCallID] != nil {
		g.answers = append(g.answers, res)
	}
	warnings, err := g.thread.Add(ev)
	for _, w := range warnings {
		g.warn(w)
	}
	return malformed(err)
}

// maxWarnings bounds what one run writes into the log.
const maxWarnings = 50

// warn is called by the goroutine of a round too.
func (g *relay) warn(w agui.Warning) {
	if g.warnings.Add(1) > maxWarnings {
		return
	}
	g.door.config.Logger.Warn("left out of an agent's stream", "agent", g.agent.Name, "what", w.String())
}

// run goes round after round until the agent asks for nothing that the fleet
// can give.
func (g *relay) run() error {
	if err := g.answer(); err != nil {
		return err
	}
	for n := 1; !g.cancelled; n++ {
		if n > g.door.config.MaxRounds {
			return &runError{code: codeRounds, message: fmt.Sprintf("The agent was run %d times and asked for tools each time.", g.door.config.MaxRounds)}
		}
		err := g.round(n)
		// Whatever the agent did, calls that were begun are answered first.
		if answers := g.answer(); answers != nil {
			return answers
		}
		if g.cancelled {
			break
		}
		if err != nil {
			return err
		}
		if !g.again() {
			return nil
		}
	}
	return g.closeAll()
}

// again reports whether the agent is to be run again: it asked for something
// that the fleet has answered, and nothing else keeps its run open.
func (g *relay) again() bool {
	o := g.ended.Outcome
	return len(g.asked) > 0 && (o == nil || o.Type == agui.OutcomeSuccess) && len(g.out.verifier.Pending()) == 0
}

// last is the end of a run that ended as its agent said.
func (g *relay) last() agui.Event {
	end := g.finished()
	if g.ended == nil || g.cancelled {
		return end
	}
	end.Result, end.Metadata = g.ended.Result, g.ended.Metadata
	if o := g.ended.Outcome; o != nil && o.Type != agui.OutcomeSuccess {
		end.Outcome = o
	}
	end.Usage = g.usage
	return end
}

// runID is the id of a round. The client's own is the first round's, and no id
// is used twice in a thread.
func (g *relay) runID(n int) string {
	if n == 1 {
		return g.input.RunID
	}
	return fmt.Sprintf("%s-%d", g.input.RunID, n)
}

// round runs the agent once and relays its stream.
func (g *relay) round(n int) error {
	in := g.input
	in.RunID, in.ProtocolVersion = g.runID(n), agui.ProtocolVersion
	in.Tools, in.Messages, in.State = g.tools, withErrors(g.thread.Messages()), g.thread.State()
	if n > 1 {
		in.Resume = nil // it was answered in the first round
	}
	g.ended, g.asked, g.reopen = nil, map[string]bool{}, map[string]bool{}
	u := startUpstream(g.ctx, g.agent, in, g.warn)
	defer u.close()
	for g.ended == nil && !g.cancelled {
		if err := g.next(u.events, g.take); err != nil {
			return err
		}
	}
	return nil
}

// take relays one event of the agent.
func (g *relay) take(e upstreamEvent) error {
	if e.err != nil {
		return e.err
	}
	switch ev := e.ev.(type) {
	case agui.RunStarted:
		return nil // the client has its own
	case agui.RunFinished:
		g.ended = &ev
		g.usage = append(g.usage, ev.Usage...)
		return nil
	case agui.RunError:
		return &runError{code: ev.Code, message: ev.Message, usage: append(g.usage, ev.Usage...)}
	case agui.ToolCallStart:
		if x := g.calls.known[ev.ToolCallID]; x != nil {
			// A call keeps the text that it had when it was begun, also in the
			// client's eyes, which may send it again.
			x.reopened, g.reopen[ev.ToolCallID] = true, true
			g.warn(agui.Warning{Type: ev.EventType(), Message: "a call that was begun was opened again; what it adds was left out"})
			return nil
		}
	case agui.ToolCallArgs:
		if g.reopen[ev.ToolCallID] {
			return nil
		}
	case agui.ToolCallEnd:
		if g.reopen[ev.ToolCallID] {
			delete(g.reopen, ev.ToolCallID)
			return nil
		}
	case agui.ToolCallResult:
		if g.calls.known[ev.ToolCallID] != nil {
			delete(g.asked, ev.ToolCallID)
			g.warn(agui.Warning{Type: ev.EventType(), Message: "an agent answered a call of a tool of the fleet; its answer was left out"})
			return nil
		}
	case agui.Other:
		if ev.Type == "MESSAGES_SNAPSHOT" {
			return g.snapshot(ev)
		}
	}
	return g.pass(e.ev)
}

// pass sends an event of the agent on, and begins the call that it completes.
func (g *relay) pass(ev agui.Event) error {
	if id := messageIDOf(ev); g.ids[id] {
		return &runError{code: codeSequence, message: "The agent took a message id of the fleet's."}
	}
	if err := g.send(ev); err != nil {
		return malformed(err) // what may not stand there is the agent's
	}
	tc, err := g.assembler.Add(ev)
	if err != nil {
		return &runError{code: codeTooMuch, message: "The agent's calls are too long.", cause: err}
	}
	if tc == nil || !g.fleet[tc.Name] {
		return nil
	}
	if len(g.calls.known) >= g.door.config.MaxCalls {
		return &runError{code: codeCalls, message: fmt.Sprintf("The agent asked for more than %d calls in one run.", g.door.config.MaxCalls)}
	}
	g.asked[tc.ID] = true
	whole := g.carried(*tc)
	g.reserve(whole)
	g.calls.begin(whole)
	return nil
}

// carried gives a call the id of the message that carries it in a history.
func (g *relay) carried(tc agui.ToolCall) agui.ToolCall {
	tc.ParentMessageID = g.thread.CarrierOf(tc.ID)
	return tc
}

// messageIDOf is the id of the message that an event is about, or "".
func messageIDOf(ev agui.Event) string {
	switch ev := ev.(type) {
	case agui.ToolCallResult:
		return ev.MessageID
	case agui.ActivitySnapshot:
		return ev.MessageID
	case agui.ActivityDelta:
		return ev.MessageID
	case agui.Other:
		return membersOf(ev).MessageID
	}
	return ""
}

// withErrors sets the error of answers that say that a call failed. An event
// has no room for it; a message does.
func withErrors(messages []agui.Message) []agui.Message {
	for i, m := range messages {
		answer, ok := m.(agui.ToolMessage)
		if !ok || answer.Error != "" {
			continue
		}
		var e call.Error
		if failed, err := answer.Metadata.Get(call.MetaError, &e); failed && err == nil {
			answer.Error = e.Message
			messages[i] = answer
		}
	}
	return messages
}

// snapshot passes the agent's messages on, with the answers it has not seen.
func (g *relay) snapshot(ev agui.Other) error {
	patched, err := withAnswers(ev, g.answers)
	switch {
	case err != nil:
		return err
	case len(patched.JSON) > agui.MaxEvent:
		return &runError{code: codeTooMuch, message: "The agent's messages and the fleet's answers are too long together for one event."}
	}
	return g.pass(patched)
}

// closeAll closes what the agent left open when its run was cancelled. A call
// of the fleet's tools that was not complete is answered: it was not run.
func (g *relay) closeAll() error {
	ends, ok := g.closing.all()
	if !ok {
		return &runError{code: agui.OutcomeCancelled, message: "The run was cancelled."}
	}
	for _, end := range ends {
		if err := g.send(end); err != nil {
			return err
		}
		e, ok := end.(agui.ToolCallEnd)
		if !ok {
			continue
		}
		tc, err := g.assembler.Add(e)
		if err != nil || tc == nil || !g.fleet[tc.Name] {
			continue
		}
		r := call.Cancelled("it was not complete, and the tool was not run")
		if err := g.send(local(g.calls.of(g.carried(*tc)), r)); err != nil {
			return err
		}
	}
	return nil
}
