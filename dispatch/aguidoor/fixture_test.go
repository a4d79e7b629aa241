package aguidoor_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch/aguidoor"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
	"github.com/toolfleet/toolfleet/internal/natsd/natsdtest"
	"github.com/toolfleet/toolfleet/results"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(natsdtest.Main(m)) }

// door is a running server with the AG-UI door on it, and a client of it.
type door struct {
	t      testing.TB
	server *httpapi.Server
	client *http.Client
	header http.Header
	stop   func()
}

// open serves the door over a fleet.
func open(t testing.TB, f *dispatchtest.Fleet, changes ...func(*aguidoor.Config, *httpapi.Config)) *door {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	a := aguidoor.Config{Dispatcher: f.Dispatcher, Tools: f.Catalog, Metrics: f.Metrics, Logger: logger}
	h := httpapi.Config{Addr: "127.0.0.1:0", Dispatcher: f.Dispatcher, Tools: f.Catalog, Metrics: f.Metrics, Logger: logger}
	for _, change := range changes {
		change(&a, &h)
	}
	ag, err := aguidoor.New(a)
	if err != nil {
		t.Fatal(err)
	}
	h.Doors = []httpapi.Door{ag}
	s, err := httpapi.New(h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	d := &door{t: t, server: s, client: &http.Client{Transport: &http.Transport{}}, header: http.Header{}}
	d.stop = func() { cancel(); <-done }
	t.Cleanup(func() {
		d.client.CloseIdleConnections()
		d.stop()
	})
	return d
}

// answer is one response, read whole.
type answer struct {
	Status int
	Header http.Header
	Body   string
}

func (d *door) do(method, path, body string, header ...string) answer {
	d.t.Helper()
	res := d.send(d.t.Context(), method, path, body, header...)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(text)}
}

func (d *door) send(ctx context.Context, method, path, body string, header ...string) *http.Response {
	d.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, d.server.URL()+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	maps.Copy(req.Header, d.header)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := d.client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	return res
}

// input is the input of a run in a client that speaks 1.0.
func input(thread, run string, messages ...agui.Message) agui.RunAgentInput {
	return agui.RunAgentInput{ThreadID: thread, RunID: run, ProtocolVersion: "1.0", Messages: messages}
}

// user says something.
func user(text string) agui.Message {
	return agui.UserMessage{MessageBase: agui.MessageBase{ID: "user-" + text}, Content: agui.Content{Text: text}}
}

// asks is an assistant message with calls: "id tool arguments" each.
func asks(id string, calls ...string) agui.Message {
	m := agui.AssistantMessage{MessageBase: agui.MessageBase{ID: id}}
	for _, c := range calls {
		f := strings.SplitN(c, " ", 3)
		m.ToolCalls = append(m.ToolCalls, agui.ToolCall{ID: f[0], Name: f[1], Arguments: f[2]})
	}
	return m
}

// stream is one run as its client sees it, held against the strict decoder and
// the verifier.
type stream struct {
	t        testing.TB
	body     io.ReadCloser
	frames   *agui.FrameReader
	decoder  agui.Decoder
	verifier agui.Verifier
	legacy   bool
	// raw is every frame that was read.
	raw    []string
	events []agui.Event
}

// start posts an input and expects a stream.
func (d *door) start(path string, in agui.RunAgentInput) *stream {
	d.t.Helper()
	return d.startWith(d.t.Context(), path, in)
}

func (d *door) startWith(ctx context.Context, path string, in agui.RunAgentInput) *stream {
	d.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		d.t.Fatal(err)
	}
	res := d.send(ctx, http.MethodPost, path, string(body))
	if ct := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || ct != "text/event-stream" {
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		d.t.Fatalf("status %d, type %q: %s", res.StatusCode, ct, text)
	}
	s := &stream{t: d.t, body: res.Body, frames: agui.NewFrameReader(res.Body), legacy: in.Legacy()}
	s.verifier.Seed(in.Messages)
	d.t.Cleanup(func() { res.Body.Close() })
	return s
}

// next returns the next event, or io.EOF.
func (s *stream) next() (agui.Event, error) {
	s.t.Helper()
	f, err := s.frames.Next()
	if err != nil {
		return nil, err
	}
	s.raw = append(s.raw, string(f.Data))
	ev, warnings, err := s.decoder.Decode(f.Data)
	if err != nil || len(warnings) > 0 || ev == nil {
		s.t.Fatalf("%s: %v %v", f.Data, err, warnings)
	}
	if err := s.verifier.Check(ev); err != nil {
		s.t.Errorf("%v: %s", err, f.Data)
	}
	s.events = append(s.events, ev)
	return ev, nil
}

// until reads up to the first event that is wanted.
func (s *stream) until(what string, wanted func(agui.Event) bool) agui.Event {
	s.t.Helper()
	for {
		ev, err := s.next()
		if err != nil {
			s.t.Fatalf("no %s: %v after\n%s", what, err, strings.Join(s.raw, "\n"))
		}
		if wanted(ev) {
			return ev
		}
	}
}

// rest reads to the end, which must be sound.
func (s *stream) rest() *stream {
	s.t.Helper()
	for {
		_, err := s.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.t.Fatalf("%v after\n%s", err, strings.Join(s.raw, "\n"))
		}
	}
	if err := s.verifier.End(); err != nil {
		s.t.Errorf("%v after\n%s", err, strings.Join(s.raw, "\n"))
	}
	return s
}

// runs posts an input and reads the run whole.
func (d *door) runs(path string, in agui.RunAgentInput) *stream {
	d.t.Helper()
	return d.start(path, in).rest()
}

// of returns the events of one type.
func of[E agui.Event](s *stream) []E {
	var out []E
	for _, ev := range s.events {
		if e, ok := ev.(E); ok {
			out = append(out, e)
		}
	}
	return out
}

// last is the event that ends the stream.
func (s *stream) last() agui.Event {
	s.t.Helper()
	if len(s.events) == 0 {
		s.t.Fatal("an empty stream")
	}
	return s.events[len(s.events)-1]
}

// result is the one answer of a call.
func (s *stream) result(id string) agui.ToolCallResult {
	s.t.Helper()
	var found []agui.ToolCallResult
	for _, r := range of[agui.ToolCallResult](s) {
		if r.ToolCallID == id {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		s.t.Fatalf("%d results of %s:\n%s", len(found), id, strings.Join(s.raw, "\n"))
	}
	return found[0]
}

// text is the answer of a call as text.
func (s *stream) text(id string) string {
	s.t.Helper()
	text, _ := s.result(id).Content.Flatten()
	return text
}

// kind is the kind of an error result, "" for success.
func kind(t testing.TB, r agui.ToolCallResult) call.Kind {
	t.Helper()
	result, err := call.ResultOf(r)
	if err != nil {
		t.Fatal(err)
	}
	return result.Kind()
}

// types are the types of the events, repeated deltas once.
func (s *stream) types() string {
	var names []string
	for _, ev := range s.events {
		name := string(ev.EventType())
		if name == "ACTIVITY_DELTA" && slices.Contains(names, name) {
			continue
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// wantSuccess checks that the run succeeded and left exactly these pending.
func (s *stream) wantSuccess(pending ...string) {
	s.t.Helper()
	f, ok := s.last().(agui.RunFinished)
	if !ok || f.Outcome == nil || f.Outcome.Type != agui.OutcomeSuccess || !slices.Equal(f.Outcome.PendingToolCallIDs, pending) {
		s.t.Fatalf("want success with pending %v:\n%s", pending, strings.Join(s.raw, "\n"))
	}
}

// wantError checks that the run ended with RUN_ERROR.
func (s *stream) wantError(code string) agui.RunError {
	s.t.Helper()
	e, ok := s.last().(agui.RunError)
	if !ok || e.Code != code || e.Message == "" {
		s.t.Fatalf("want RUN_ERROR %s:\n%s", code, strings.Join(s.raw, "\n"))
	}
	return e
}

// echo answers with its arguments.
func echo(_ context.Context, r *dispatchtest.Running) call.Result {
	r.Update("one", 1)
	return call.Result{Content: []agui.Part{agui.Text(r.Args)}}
}

// hang waits for its end.
func hang(ctx context.Context, r *dispatchtest.Running) call.Result {
	r.Update("working", 1)
	<-ctx.Done()
	return call.Result{Content: []agui.Part{agui.Text("so far")}}
}

// fleet has a worker and the tools echo and hang, and what is given besides.
func fleet(t testing.TB, more map[string]dispatchtest.Tool) *dispatchtest.Fleet {
	t.Helper()
	tools := map[string]dispatchtest.Tool{"echo": echo, "hang": hang}
	maps.Copy(tools, more)
	f := dispatchtest.New(t)
	var names []string
	for name := range tools {
		names = append(names, name)
	}
	slices.Sort(names)
	replace(t, f, names...)
	f.Work(t, tools)
	return f
}

// calls are those that the fleet knows.
func calls(t testing.TB, f *dispatchtest.Fleet) []results.Summary {
	t.Helper()
	list, err := f.List(t.Context(), call.DefaultTenant, results.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// specs are the tools of the fleet.
func specs(f *dispatchtest.Fleet) []catalog.Spec {
	var list []catalog.Spec
	for _, s := range f.Catalog.List(call.DefaultTenant) {
		list = append(list, *s)
	}
	return list
}

// tokens writes a token file.
func tokens(t testing.TB, lines ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
