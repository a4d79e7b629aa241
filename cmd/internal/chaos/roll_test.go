package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/cmd/internal/client"
)

// What a fault may do to a call, a restart may not.
func TestNothingIsForgivenInARoll(t *testing.T) {
	for kind, want := range map[call.Kind]string{
		"":                     allKept,
		call.KindInterrupted:   oneWrong,
		call.KindSandboxFailed: oneWrong,
		call.KindInternal:      oneWrong,
		call.KindExpired:       oneWrong,
	} {
		v := &verdict{}
		v.judgeCalm(asked{}, logged{results: 1, kind: kind})
		if v.String() != want {
			t.Errorf("%q: %s", kind, v)
		}
	}
}

func TestSumOfAMetric(t *testing.T) {
	page := []byte("# HELP up a\nup{class=\"a b\"} 2\nup{class=\"c\"} 1.5\nupper 7\nalone 1e3\n")
	for name, want := range map[string]float64{"up": 3.5, "upper": 7, "alone": 1000} {
		if got, ok := sum(page, name); got != want || !ok {
			t.Errorf("%s is %v, %v", name, got, ok)
		}
	}
	if _, ok := sum(page, "down"); ok {
		t.Error("a metric that is not there has a value")
	}
}

// A client of the AG-UI door goes on elsewhere when the dispatcher goes, and
// fails for everything that another dispatcher would not mend.
func TestRunThatEndsWithoutItsAnswer(t *testing.T) {
	const begin = `data: {"type":"RUN_STARTED","threadId":"chaos","runId":"c-1"}` + "\n\n"
	const result = `data: {"type":"TOOL_CALL_RESULT","messageId":"res","toolCallId":"c","content":"ok"}` + "\n\n"
	failed := func(code string) string {
		return fmt.Sprintf(`data: {"type":"RUN_ERROR","message":"m","code":%q}`+"\n\n", code)
	}
	for name, c := range map[string]struct {
		stream       string
		again, fails bool
		results      int
	}{
		"whole":         {begin + result + `data: {"type":"RUN_FINISHED","threadId":"chaos","runId":"c-1"}` + "\n\n", false, false, 1},
		"cut":           {begin, true, true, 0},
		"shutting down": {begin + failed("shutting_down"), true, true, 0},
		"unavailable":   {begin + result + failed("unavailable"), true, true, 1},
		"internal":      {begin + failed("internal"), false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, c.stream)
			}))
			defer server.Close()
			defer http.DefaultClient.CloseIdleConnections()
			fleet, err := client.New(server.URL, "")
			if err != nil {
				t.Fatal(err)
			}
			seen, accepted := answer{tries: 1}, 0
			err = byAGUI(t.Context(), fleet, asked{id: "c"}, visit{seen: &seen, accepted: func(string) { accepted++ }})
			if again := errors.Is(err, client.ErrUnreachable); again != c.again || (err != nil) != c.fails {
				t.Errorf("it ended with %v", err)
			}
			if accepted != 1 || seen.results != c.results {
				t.Errorf("accepted %d times, %d results", accepted, seen.results)
			}
		})
	}
}

// A call is taken up at the other dispatcher, and its wait counts from the first.
func TestCallMovesToTheOtherDoor(t *testing.T) {
	f := &fleet{logger: newProcess(t, "").logger}
	for _, url := range []string{"http://one.example", "http://two.example"} {
		c, err := client.New(url, "")
		if err != nil {
			t.Fatal(err)
		}
		f.clients = append(f.clients, c)
	}
	var visited []*client.Fleet
	fails := []error{client.ErrUnreachable, fmt.Errorf("%w: %w", client.ErrLost, client.ErrUnreachable), nil}
	d := func(_ context.Context, c *client.Fleet, _ asked, v visit) error {
		visited = append(visited, c)
		if err := fails[len(visited)-1]; err != nil {
			return err
		}
		v.accepted("")
		return v.seen.take(agui.ToolCallResult{Content: agui.Content{Text: "ok"}}, 1)
	}
	seen := f.makeCall(t.Context(), asked{id: "c"}, d, 1)
	want := []*client.Fleet{f.clients[1], f.clients[0], f.clients[1]}
	if seen.err != nil || seen.tries != 3 || seen.results != 1 || seen.accepted < 0 || !slices.Equal(visited, want) {
		t.Errorf("%+v, at %v", seen, visited)
	}
	broken := errors.New("the request makes no sense")
	visited, fails = nil, []error{broken}
	if seen := f.makeCall(t.Context(), asked{id: "c"}, d, 0); !errors.Is(seen.err, broken) || seen.tries != 1 || seen.accepted >= 0 {
		t.Errorf("%+v", seen)
	}
}

func TestWatchKnowsWhatItMissed(t *testing.T) {
	part := func(version string) (w client.WorkerStatus) { w.Version = version; return w }
	draining := part("one")
	draining.State = "draining"
	two := []client.DispatcherStatus{{Version: "one"}, {Version: "one"}}
	w := &watch{}
	for _, step := range []struct {
		workers float64
		status  client.Status
		misses  string
	}{
		{3, client.Status{Workers: []client.WorkerStatus{part("one")}, Dispatchers: two}, "never fell"},
		{2, client.Status{Workers: []client.WorkerStatus{part("one")}, Dispatchers: two}, "drains"},
		{3, client.Status{Workers: []client.WorkerStatus{draining}, Dispatchers: two}, "away"},
		{3, client.Status{Workers: []client.WorkerStatus{part("one")}, Dispatchers: two[:1]}, "two versions"},
		{3, client.Status{Workers: []client.WorkerStatus{part("one"), part("two")}, Dispatchers: two}, ""},
	} {
		w.gauge.note(step.workers)
		w.status.note(step.status)
		if err := w.missed(); (err == nil) != (step.misses == "") || err != nil && !strings.Contains(err.Error(), step.misses) {
			t.Errorf("missed: %v, want %q", err, step.misses)
		}
	}
	if w.whole() == nil {
		t.Error("two workers of two versions are a whole fleet")
	}
	w.status.note(client.Status{Workers: []client.WorkerStatus{part("two"), part("two"), part("two")}, Dispatchers: []client.DispatcherStatus{{Version: "two"}, {Version: "two"}}})
	if err := w.whole(); err != nil {
		t.Error(err)
	}
}
