package aguidoor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/agui"
)

// However chunks of texts, of reasoning and of calls are mixed over the lanes,
// what stands for them is a sound stream without chunks that says the same.
func TestChunksOfEverythingBecomeASoundStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &chunker{t: t, open: map[string]string{}, want: map[string]string{}}
		g.say(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
		g.say(`{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"s"}`)
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			g.step()
		}
		g.say(`{"type":"SUBAGENT_FINISHED","subagentRunId":"s"}`)
		g.say(`{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`)
		if err := g.verifier.End(); err != nil {
			t.Fatal(err)
		}
		for id, want := range g.want {
			if g.got[id] != want {
				t.Errorf("%s says %q, want %q", id, g.got[id], want)
			}
		}
	})
}

// chunker speaks in chunks, and reads what stands for them.
type chunker struct {
	t    *rapid.T
	n    int
	open map[string]string // lane → "kind id"
	want map[string]string // id → text
	got  map[string]string

	calls    agui.Expander
	messages messageChunks
	verifier agui.Verifier
}

func (g *chunker) step() {
	lane := rapid.SampledFrom([]string{"", "s"}).Draw(g.t, "lane")
	tag := ""
	if lane != "" {
		tag = `,"subagentRunId":"s"`
	}
	kind := rapid.SampledFrom([]string{"TEXT_MESSAGE", "REASONING_MESSAGE", "TOOL_CALL", "CUSTOM", "ACTIVITY"}).Draw(g.t, "kind")
	switch kind {
	case "CUSTOM":
		delete(g.open, lane)
		g.say(fmt.Sprintf(`{"type":"CUSTOM","name":"example.x","value":1%s}`, tag))
		return
	case "ACTIVITY":
		g.say(fmt.Sprintf(`{"type":"ACTIVITY_SNAPSHOT","messageId":"a%s","activityType":"example.x","content":{}%s}`, lane, tag))
		return
	}
	delta := rapid.SampledFrom([]string{"", "a", "\n", "é"}).Draw(g.t, "delta")
	member, name := "messageId", ""
	if kind == "TOOL_CALL" {
		member, name = "toolCallId", `,"toolCallName":"x"`
	}
	held, id, found := strings.Cut(g.open[lane], " ")
	ids := ""
	switch {
	case found && held == kind && rapid.Bool().Draw(g.t, "go on"):
		if rapid.Bool().Draw(g.t, "with its id") {
			ids = fmt.Sprintf(`,%q:%q`, member, id)
		}
	default:
		g.n++
		id = fmt.Sprintf("i%d", g.n)
		ids = fmt.Sprintf(`,%q:%q%s`, member, id, name)
		g.open[lane] = kind + " " + id
	}
	g.want[id] += delta
	quoted, err := json.Marshal(delta)
	if err != nil {
		g.t.Fatal(err)
	}
	g.say(fmt.Sprintf(`{"type":"%s_CHUNK","delta":%s%s%s}`, kind, quoted, ids, tag))
}

func (g *chunker) say(event string) {
	ev, _, err := agui.Decode([]byte(event))
	if err != nil {
		g.t.Fatal(err)
	}
	triads, err := g.calls.Expand(ev)
	if err != nil {
		g.t.Fatalf("%s: %v", event, err)
	}
	for _, ev := range triads {
		whole, err := g.messages.expand(ev)
		if err != nil {
			g.t.Fatalf("%s: %v", event, err)
		}
		for _, ev := range whole {
			g.hear(ev)
		}
	}
}

func (g *chunker) hear(ev agui.Event) {
	if strings.HasSuffix(string(ev.EventType()), "_CHUNK") {
		g.t.Fatalf("a chunk is left: %s", ev.EventType())
	}
	if err := g.verifier.Check(ev); err != nil {
		g.t.Fatal(err)
	}
	if g.got == nil {
		g.got = map[string]string{}
	}
	switch ev := ev.(type) {
	case agui.ToolCallArgs:
		g.got[ev.ToolCallID] += ev.Delta
	case agui.Other:
		var m message
		if err := json.Unmarshal(ev.JSON, &m); err != nil {
			g.t.Fatal(err)
		}
		if m.Delta != nil {
			g.got[m.MessageID] += *m.Delta
		}
	}
}

func TestAnswersAreSeatedInSnapshots(t *testing.T) {
	const caller = `{"id":"m1","role":"assistant","toolCalls":[{"id":"c1"},{"id":"c2"}]}`
	for name, test := range map[string]struct {
		messages string
		at       int
		ok       bool
	}{
		"behind its message": {`{"id":"u","role":"user"},` + caller + `,{"id":"m2","role":"assistant"}`, 2, true},
		"at the end":         {caller, 1, true},
		"behind the others":  {caller + `,{"role":"tool","toolCallId":"c2"},{"role":"tool","toolCallId":"c0"},{"role":"user"}`, 3, true},
		"and not further":    {caller + `,{"role":"user"},{"role":"tool","toolCallId":"c2"}`, 1, true},
		"there already":      {caller + `,{"role":"tool","toolCallId":"c1"}`, 0, false},
		"its message gone":   {`{"id":"m2","role":"assistant"}`, 0, false},
		"nothing":            {``, 0, false},
	} {
		var messages []json.RawMessage
		if err := json.Unmarshal([]byte("["+test.messages+"]"), &messages); err != nil {
			t.Fatal(err)
		}
		if at, ok := seat(messages, "c1"); at != test.at || ok != test.ok {
			t.Errorf("%s: %d %v", name, at, ok)
		}
	}
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestAnAgentsStreamIsBounded(t *testing.T) {
	silence := time.NewTimer(time.Hour)
	defer silence.Stop()
	_, err := io.ReadAll(&heard{body: endless{}, silence: silence, pause: time.Hour, left: 1 << 16})
	var why *runError
	if !errors.As(err, &why) || why.code != codeTooMuch {
		t.Error(err)
	}
}
