package agui

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestTC34AnySplitMakesTheSameCall(t *testing.T) {
	text := `{"emoji":"😀é","quote":"\"","n":[1,2]} trailing`
	want := []ToolCall{{ID: "a", Name: "n", Arguments: text}}
	for cut := range len(text) + 1 {
		// Also inside a character, which JSON cannot carry: events that are
		// made in this process.
		var a Assembler
		var got []ToolCall
		for _, e := range []Event{start("a"), ToolCallArgs{ToolCallID: "a", Delta: text[:cut]}, ToolCallArgs{ToolCallID: "a", Delta: text[cut:]}, end("a")} {
			c, err := a.Add(e)
			if err != nil {
				t.Fatal(err)
			}
			if c != nil {
				got = append(got, *c)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
		}
	}
	for cut := range []rune(text) {
		r := []rune(text)
		got := accepts(t, begin, startLine("a", ""), argsLine("a", string(r[:cut])), argsLine("a", string(r[cut:])), endLine("a"), success)
		if diff := cmp.Diff(want, got.calls); diff != "" {
			t.Fatalf("cut at %d (-want +got):\n%s", cut, diff)
		}
	}
	if got := accepts(t, begin, startLine("a", ""), argsLine("a", "{oops"), endLine("a"), success); got.calls[0].Arguments != "{oops" {
		t.Errorf("malformed text became %q", got.calls[0].Arguments)
	}
}

func TestTC36DisagreementIsRefusedNotDecided(t *testing.T) {
	got := refuses(t, "another toolCallName", begin, startLine("a", ""), endLine("a"), line("TOOL_CALL_START", `"toolCallId":"a","toolCallName":"other"`), endLine("a"))
	if diff := cmp.Diff([]ToolCall{{ID: "a", Name: "n"}}, got.calls); diff != "" {
		t.Errorf("neither name wins (-want +got):\n%s", diff)
	}
}

func TestTC37ConflictingChunkIsFatal(t *testing.T) {
	first := chunkLine(`"toolCallId":"a","toolCallName":"n","delta":"{}"`)
	for want, second := range map[string]string{
		"toolCallName is not":    chunkLine(`"toolCallName":"other"`),
		"parentMessageId is not": chunkLine(`"toolCallId":"a","parentMessageId":"m"`),
	} {
		if got := refuses(t, want, begin, first, second, success); got.calls != nil {
			t.Errorf("the half-built call was given out: %+v", got.calls)
		}
	}
}

func TestTC39ResultMayNeverCome(t *testing.T) {
	got := accepts(t, begin, startLine("ui", ""), endLine("ui"), success)
	if !slices.Equal(got.pending, []string{"ui"}) || len(got.calls) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestTC40ToolMessageHasTheEventsContent(t *testing.T) {
	for _, content := range []Content{{}, {Text: "x"}, {Parts: []Part{}}, {Parts: []Part{Text("a"), {Type: PartText, Text: "b", ID: "i"}}}} {
		e := ToolCallResult{Base: Base{Metadata: Metadata{"k": json.RawMessage("1")}, SubagentRunID: "s"}, MessageID: "m", ToolCallID: "c", Content: content}
		want := ToolMessage{MessageBase: MessageBase{ID: "m", Metadata: e.Metadata, SubagentRunID: "s"}, ToolCallID: "c", Content: content}
		if diff := cmp.Diff(want, e.Message()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

func TestTC42MetadataOfPartsIsKept(t *testing.T) {
	meta := json.RawMessage(`{"toolfleet.filename":"a.png","n":[1.50,null]}`)
	sent := []Part{{Type: PartText, Text: "", Metadata: meta}, {Type: PartImage, Source: &Source{Type: SourceURL, Value: "u"}, Metadata: meta}}
	raw := encodes(t, ToolCallResult{MessageID: "m", ToolCallID: "c", Content: Content{Parts: sent}})
	e, warnings, err := Decode([]byte(raw))
	if err != nil || warnings != nil {
		t.Fatal(warnings, err)
	}
	if diff := cmp.Diff(sent, e.(ToolCallResult).Content.Parts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// fileHandles look like something that could be fetched.
var fileHandles = []string{"file-abc123", "http://169.254.169.254/latest", "file:///etc/passwd", "../../x", "\u0000;\"'"}

func TestTC43FileHandleIsOpaque(t *testing.T) {
	for _, handle := range fileHandles {
		sent := Media(PartDocument, Source{Type: SourceFile, Value: handle, Provider: "openai"})
		raw := encodes(t, ToolCallResult{MessageID: "m", ToolCallID: "c", Content: Content{Parts: []Part{sent}}})
		e, warnings, err := Decode([]byte(raw))
		if err != nil || warnings != nil {
			t.Fatal(warnings, err)
		}
		if diff := cmp.Diff([]Part{sent}, e.(ToolCallResult).Content.Parts); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

func TestTC44FlattenJoinsTextInOrder(t *testing.T) {
	image := Media(PartImage, Source{Type: SourceURL, Value: "u"})
	if text, _ := (Content{Parts: []Part{Text("one "), image, Text("two"), Text(""), image, Text(" three")}}).Flatten(); text != "one two three" {
		t.Errorf("flattened to %q", text)
	}
}

func TestTC45PendingIsInOrderOfStarts(t *testing.T) {
	got := accepts(t, begin, startLine("b", ""), startLine("a", ""), startLine("c", ""), endLine("a"), endLine("c"), endLine("b"),
		startLine("b", ""), endLine("b"), resultLine("a"), success)
	if !slices.Equal(got.pending, []string{"b", "c"}) {
		t.Errorf("pending %v", got.pending)
	}
}

func TestTC46PendingIsDerivedFromAnInterruptedRun(t *testing.T) {
	got := accepts(t, begin, startLine("a", ""), endLine("a"),
		line("RUN_FINISHED", `"threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"approval","toolCallId":"a"}]}`))
	if !slices.Equal(got.pending, []string{"a"}) {
		t.Errorf("pending %v", got.pending)
	}
}

func TestTC47AnswersOfTheNextInput(t *testing.T) {
	history := []Message{user("u"), assistant("m", "ok", "broken", "slow", "no")}
	parts := Content{Parts: []Part{Text("half")}}
	next, err := Reply(history,
		Declined("m1", "no", "The user said no."),
		Failed("m2", "slow", "The tool timed out.", parts),
		Answered("m3", "ok", parts),
		Failed("m4", "broken", "The tool exited with code 3.", Content{}))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]ToolMessage{}
	for _, m := range next {
		if a, ok := m.(ToolMessage); ok {
			if _, twice := seen[a.ToolCallID]; twice {
				t.Errorf("two answers for %s", a.ToolCallID)
			}
			seen[a.ToolCallID] = a
		}
	}
	if len(seen) != 4 || seen["ok"].Error != "" || seen["broken"].Error == "" || seen["slow"].Error == "" {
		t.Errorf("answers %+v", seen)
	}
	if diff := cmp.Diff(parts, seen["slow"].Content); diff != "" {
		t.Errorf("the partial result is lost:\n%s", diff)
	}
	if text := seen["no"].Content.Text; !strings.Contains(text, "declined") || seen["no"].Error == "" {
		t.Errorf("declined: %+v", seen["no"])
	}
}

func TestTC49AnswersAndInterruptsAreApart(t *testing.T) {
	in, _, err := DecodeInput([]byte(input(`,"resume":[{"interruptId":"a","status":"resolved","payload":"x"}]`,
		`{"id":"m","role":"assistant","toolCalls":[{"id":"a","type":"function","function":{"name":"n","arguments":"{}"}}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	if p := PendingCalls(in.Messages); len(p) != 1 || p[0].ID != "a" {
		t.Errorf("an entry of resume answered the call: pending %v", p)
	}
}

func TestTC50AnyNameIsAccepted(t *testing.T) {
	got := accepts(t, begin, line("TOOL_CALL_START", `"toolCallId":"a","toolCallName":"nobody knows/ this"`), endLine("a"), success)
	if got.calls[0].Name != "nobody knows/ this" || got.warnings != nil {
		t.Errorf("%+v", got)
	}
}

func TestTC52WrongOpenAndCloseAreFatal(t *testing.T) {
	refuses(t, "TOOL_CALL_ARGS: the call is not open", begin, argsLine("a", "{}"))
	refuses(t, "TOOL_CALL_END: the call is not open", begin, startLine("a", ""), endLine("a"), endLine("a"))
	refuses(t, "TOOL_CALL_START: the call is open already", begin, startLine("a", ""), startLine("a", ""))
}

func TestTC53OpenCallAtTheEndIsFatal(t *testing.T) {
	refuses(t, "still open: tool call a", begin, startLine("a", ""), success)
	refuses(t, "still open: tool call a", begin, startLine("a", ""), line("RUN_FINISHED", `"threadId":"t","runId":"r","outcome":{"type":"cancelled"}`))
	accepts(t, begin, startLine("a", ""), aborted)
}

func TestLX01RunBeginsAndEndsOnce(t *testing.T) {
	refuses(t, "first event must be", startLine("a", ""))
	refuses(t, "has finished already", begin, success, startLine("a", ""))
	refuses(t, "RUN_ERROR already", begin, aborted, aborted)
	refuses(t, "still going on", begin, strings.Replace(begin, `"r"`, `"s"`, 1))
	accepts(t, aborted)
	accepts(t, begin, success, aborted)
	accepts(t, begin, aborted, strings.Replace(begin, `"r"`, `"s"`, 1), strings.Replace(success, `"r"`, `"s"`, 1))
}

func TestLX02VersionsAreServedOrRefused(t *testing.T) {
	for version, want := range map[string]string{
		`"1.0"`: "", `"1.1"`: "warned", `"1.99.3"`: "warned", `"0.9"`: "", `"soon"`: "warned", `"2.0"`: "refused", `"10"`: "refused",
	} {
		_, warnings, err := DecodeInput([]byte(input(`,"protocolVersion":`+version, ``)))
		if got := map[bool]string{true: "refused"}[err != nil] + map[bool]string{true: "warned"}[len(warnings) > 0]; got != want {
			t.Errorf("version %s is %q, want %q: %v %v", version, got, want, warnings, err)
		}
	}
}

func TestLX05CutStreamIsNoSuccess(t *testing.T) {
	whole := []string{begin, startLine("a", ""), endLine("a"), resultLine("a"), success}
	for n := range len(whole) {
		got := take(whole[:n]...)
		if got.err == nil {
			t.Errorf("%d of %d events pass as a run", n, len(whole))
		}
	}
	accepts(t, whole...)
}

func TestLX06IDsAreUsedOnce(t *testing.T) {
	answered := []string{begin, startLine("a", ""), endLine("a"), startLine("b", ""), endLine("b"), resultLine("a")}
	refuses(t, "messageId was used", append(slices.Clone(answered), line("TOOL_CALL_RESULT", `"toolCallId":"b","messageId":"res-a","content":""`))...)
	refuses(t, "runId was used", begin, success, begin)
	for _, id := range []string{"a b", "../x", "😀", "\\u0000", strings.Repeat("x", 10_000)} { // opaque
		accepts(t, begin, startLine(id, ""), endLine(id), resultLine(id), success)
	}
}

func TestLX07AbsentIsNeverNull(t *testing.T) {
	for _, e := range []Event{
		RunStarted{},
		RunFinished{},
		RunFinished{Outcome: &Outcome{Type: OutcomeSuccess}},
		RunError{},
		ToolCallStart{},
		ToolCallArgs{},
		ToolCallEnd{},
		ToolCallChunk{},
		ToolCallResult{},
		ActivitySnapshot{Content: json.RawMessage("{}")},
		ActivityDelta{Patch: []PatchOp{}},
		Custom{Value: json.RawMessage("1")},
	} {
		if raw := encodes(t, e); strings.Contains(raw, "null") {
			t.Errorf("%s", raw)
		}
	}
	for _, m := range []Message{DeveloperMessage{}, SystemMessage{}, AssistantMessage{}, UserMessage{}, ToolMessage{}, ReasoningMessage{}, ActivityMessage{Content: json.RawMessage("{}")}} {
		if raw, err := json.Marshal(m); err != nil || strings.Contains(string(raw), "null") {
			t.Errorf("%s, %v", raw, err)
		}
	}
	for _, member := range []string{"timestamp", "rawEvent", "metadata", "subagentRunId", "parentMessageId"} {
		refuses(t, member, begin, startLine("a", `,"`+member+`":null`))
	}
}

func TestLX08OnlyWhatTheProtocolHas(t *testing.T) {
	if len(shapes())+len(relayed()) != 31 {
		t.Errorf("%d types of events, want 31", len(shapes())+len(relayed()))
	}
	for _, typ := range []EventType{"TOOL_CALL_PROGRESS", "THINKING_START", ""} {
		if raw, err := Encode(Other{Type: typ, JSON: json.RawMessage(`{"type":"` + string(typ) + `"}`)}); err == nil {
			t.Errorf("%s is on the wire", raw)
		}
	}
	// Whatever is encoded decodes without a warning, so it has no member of
	// our own invention.
	for _, e := range events {
		if _, warnings, err := Decode([]byte(encodes(t, e))); err != nil || warnings != nil {
			t.Errorf("%#v: %v, %v", e, warnings, err)
		}
	}
}

func TestLX09InputIsStrictAndPatient(t *testing.T) {
	in, warnings, err := DecodeInput([]byte(input(`,"novel":1`, `{"id":"m","role":"user","content":"hi","novel":1}`)))
	if err != nil || len(warnings) != 2 || len(in.Messages) != 1 {
		t.Errorf("%+v, %v, %v", in, warnings, err)
	}
	if _, _, err := DecodeInput([]byte(input(``, `{"id":"m","role":"user","content":7}`))); err == nil {
		t.Error("a malformed message was taken")
	}
}

func TestLX10AbsentIsEmpty(t *testing.T) {
	in, warnings, err := DecodeInput([]byte(input(``, ``)))
	if err != nil || warnings != nil || in.Tools != nil || in.Context != nil || in.Advertises("n") {
		t.Errorf("%+v, %v, %v", in, warnings, err)
	}
	thread := NewThread(in)
	if w, err := thread.Add(other(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":1}]}`)); err != nil || w != nil || string(thread.State()) != `{"a":1}` {
		t.Errorf("an absent state is no {}: %s, %v, %v", thread.State(), w, err)
	}
}

// LX-11 at this end: a handle that no one can use costs its part, and nothing
// is fetched: the package imports no way to.
func TestLX11UnusableSourceCostsItsPart(t *testing.T) {
	e, warnings, err := Decode([]byte(line("TOOL_CALL_RESULT", `"messageId":"m","toolCallId":"c","content":[{"type":"image","source":{"type":"cloud","handle":"h"}},{"type":"text","text":"a"}]`)))
	if err != nil || len(warnings) != 1 || len(e.(ToolCallResult).Content.Parts) != 1 {
		t.Errorf("%+v, %v, %v", e, warnings, err)
	}
}

func TestLX12DeltaNeedsItsSnapshot(t *testing.T) {
	snapshot := line("ACTIVITY_SNAPSHOT", `"messageId":"x","activityType":"a","content":{}`)
	delta := line("ACTIVITY_DELTA", `"messageId":"x","activityType":"a","patch":[{"op":"add","path":"/n","value":1}]`)
	refuses(t, "no snapshot", begin, delta, success)
	accepts(t, begin, snapshot, delta, success)
	refuses(t, "content", begin, strings.Replace(snapshot, `{}`, `[]`, 1))
}

func TestLX14MetadataMergesByKey(t *testing.T) {
	meta := func(typ, id, m string) string { return line(typ, `"toolCallId":"`+id+`",`+m) }
	got := accepts(t, begin,
		startLine("a", `,"metadata":{"k":{"x":1},"only":1}`),
		meta("TOOL_CALL_ARGS", "a", `"delta":"{}","metadata":{"k":{"y":2}}`),
		meta("TOOL_CALL_END", "a", `"metadata":{"n":null}`), success)
	want := Metadata{"k": json.RawMessage(`{"y":2}`), "only": json.RawMessage("1"), "n": json.RawMessage("null")}
	if diff := cmp.Diff(want, got.calls[0].Metadata); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLX15SnapshotDeclaresTheWholeHistory(t *testing.T) {
	thread, _ := follow(t, RunAgentInput{Messages: []Message{user("u"), assistant("gone"), ReasoningMessage{MessageBase: MessageBase{ID: "thought"}}}},
		other(`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":"hi"}]}`))
	if s := spellIDs(thread.Messages(), Message.MessageID); s != "u thought" {
		t.Errorf("the thread is %s", s)
	}
}

func TestLX17DowngradeChangesNoOutcomeIDOrOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events, pending := conversation(t)
		var v Verifier
		for i, e := range events {
			if r, ok := e.(ToolCallResult); ok {
				r.Content = Content{Parts: []Part{Text("a"), Media(PartImage, Source{Type: SourceURL, Value: "u"})}}
				e = r
			}
			down, warnings := Downgrade(e)
			if _, isResult := e.(ToolCallResult); isResult && len(warnings) != 1 {
				t.Fatal("a part was dropped without a warning")
			}
			if down.EventType() != events[i].EventType() {
				t.Fatalf("%s became %s", e.EventType(), down.EventType())
			}
			if err := v.Check(down); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(pending, v.Pending()); diff != "" {
			t.Fatalf("pending (-want +got):\n%s", diff)
		}
	})
	// The one outcome that has no lawful spelling is no success.
	got, _ := Downgrade(RunFinished{ThreadID: "t", RunID: "r", Outcome: &Outcome{Type: OutcomeCancelled}})
	if e, ok := got.(RunError); !ok || e.Code != "cancelled" {
		t.Errorf("cancelled became %#v", got)
	}
}

// However calls interleave, and however the bytes of their stream arrive, they
// are the same calls.
func TestAnyInterleavingAndAnySplitOfBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []ToolCall
		var left [][]Event
		for i := range rapid.IntRange(1, 5).Draw(t, "calls") {
			id := fmt.Sprint("call-", i)
			text := rapid.String().Draw(t, "arguments")
			want = append(want, ToolCall{ID: id, Name: "n", Arguments: text})
			one := []Event{start(id)}
			for rest := []rune(text); len(rest) > 0; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
				one = append(one, ToolCallArgs{ToolCallID: id, Delta: string(rest[:n])})
				rest = rest[n:]
			}
			left = append(left, append(one, end(id)))
		}
		var stream strings.Builder
		write := func(e Event) {
			raw, err := Encode(e)
			if err != nil {
				t.Fatal(err)
			}
			if err := WriteFrame(&stream, Frame{Data: raw}); err != nil {
				t.Fatal(err)
			}
		}
		write(run("r"))
		for len(left) > 0 {
			i := rapid.IntRange(0, len(left)-1).Draw(t, "next")
			write(left[i][0])
			if left[i] = left[i][1:]; len(left[i]) == 0 {
				left = slices.Delete(left, i, i+1)
			}
		}
		write(finish("r"))
		var lines []string
		for frames := NewFrameReader(&splitReader{stream.String(), t}); ; {
			f, err := frames.Next()
			if err != nil {
				break
			}
			lines = append(lines, string(f.Data))
		}
		got := take(lines...)
		slices.SortFunc(got.calls, func(a, b ToolCall) int { return strings.Compare(a.ID, b.ID) })
		if diff := cmp.Diff(want, got.calls); diff != "" || got.err != nil {
			t.Fatalf("%v (-want +got):\n%s", got.err, diff)
		}
	})
}

// splitReader gives out a text in pieces of random sizes.
type splitReader struct {
	rest string
	t    *rapid.T
}

func (r *splitReader) Read(p []byte) (int, error) {
	n := min(len(p), len(r.rest), rapid.IntRange(1, 64).Draw(r.t, "read"))
	copy(p, r.rest[:n])
	r.rest = r.rest[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
