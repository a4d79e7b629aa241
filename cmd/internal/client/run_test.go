package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/toolfleet/toolfleet/agui"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "abcdefghijklmnopqrstuvwxyz"

var (
	started  = `{"type":"RUN_STARTED","threadId":"t","runId":"r","metadata":{"toolfleet.call":"` + key + `"}}`
	start    = `{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"x"}`
	args     = `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{}"}`
	argsEnd  = `{"type":"TOOL_CALL_END","toolCallId":"c"}`
	snapshot = `{"type":"ACTIVITY_SNAPSHOT","messageId":"exec-` + key + `","activityType":"toolfleet.tool-execution","content":{}}`
	result   = `{"type":"TOOL_CALL_RESULT","messageId":"res-` + key + `","toolCallId":"c","content":"ok"}`
	finished = `{"type":"RUN_FINISHED","threadId":"t","runId":"r"}`
)

// fleet serves one scripted answer for each request, and notes the requests.
type fleet struct {
	*httptest.Server
	answers  []func(http.ResponseWriter)
	requests []string
}

func newFleet(t *testing.T, answers ...func(http.ResponseWriter)) (*fleet, *Fleet) {
	t.Helper()
	s := &fleet{answers: answers}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		line := r.Method + " " + r.URL.Path
		if id := r.Header.Get("Last-Event-ID"); id != "" {
			line += " after " + id
		}
		if len(body) > 0 {
			line += " " + string(body)
		}
		s.requests = append(s.requests, line)
		if len(s.requests) > len(s.answers) {
			http.Error(w, "no answer left", http.StatusInternalServerError)
			return
		}
		s.answers[len(s.requests)-1](w)
	}))
	c, err := New(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.http.CloseIdleConnections()
		s.Close()
	})
	return s, c
}

// stream answers with events; "#n" before one is its id. The stream ends
// behind them.
func stream(events ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			if id, ok := strings.CutPrefix(e, "#"); ok {
				id, e, _ = strings.Cut(id, " ")
				fmt.Fprintf(w, "id: %s\n", id)
			}
			fmt.Fprintf(w, "data: %s\n\n", e)
		}
	}
}

func status(code int, problem string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(code)
		fmt.Fprint(w, problem)
	}
}

// page answers as a web server does that is no fleet.
func page(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		fmt.Fprint(w, "<html>welcome")
	}
}

var request = Request{Tool: "x", Arguments: "{}", ToolCallID: "c", ThreadID: "t", RunID: "r"}

const sent = `POST /v1/calls {"tool":"x","arguments":"{}","toolCallId":"c","threadId":"t","runId":"r"}`

func TestCallAcrossConnections(t *testing.T) {
	whole := []string{started, start, args, argsEnd, snapshot, result, finished}
	for name, test := range map[string]struct {
		answers []func(http.ResponseWriter)
		want    []string // events
		asked   []string
	}{
		"one connection": {
			answers: []func(http.ResponseWriter){stream(whole...)},
			want:    whole,
			asked:   []string{sent},
		},
		"broken behind an event: taken up there, and no head is seen twice": {
			answers: []func(http.ResponseWriter){
				stream(started, start, args, argsEnd, "#7 "+snapshot),
				stream(started, start, args, argsEnd, snapshot, "#9 "+result, finished),
			},
			want:  []string{started, start, args, argsEnd, snapshot, snapshot, result, finished},
			asked: []string{sent, "GET /v1/calls/" + key + "/events after 7"},
		},
		"broken in the arguments: they are seen whole, once": {
			answers: []func(http.ResponseWriter){stream(started, start, args), stream(whole...)},
			want:    whole,
			asked:   []string{sent, "GET /v1/calls/" + key + "/events"},
		},
		"broken behind the result: it is seen once": {
			answers: []func(http.ResponseWriter){
				stream(started, start, args, argsEnd, "#7 "+snapshot, result),
				stream(started, start, args, argsEnd, snapshot, result, "#9 "+finished),
			},
			want:  whole,
			asked: []string{sent, "GET /v1/calls/" + key + "/events after 7"},
		},
		"broken before the id was known: the same request finds the same call": {
			answers: []func(http.ResponseWriter){stream(), stream(whole...)},
			want:    whole,
			asked:   []string{sent, sent},
		},
		"the fleet restarts": {
			answers: []func(http.ResponseWriter){stream(started), status(503, `{}`), stream(whole...)},
			want:    whole,
			asked:   []string{sent, "GET /v1/calls/" + key + "/events", "GET /v1/calls/" + key + "/events"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := newFleet(t, test.answers...)
			var got, ids []string
			var verifier agui.Verifier
			err := c.Call(t.Context(), request, func(id string) { ids = append(ids, id) }, func(ev Event) error {
				got = append(got, string(ev.JSON))
				return verifier.Check(ev.Event)
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := verifier.End(); err != nil {
				t.Errorf("the events are not one run: %v", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.asked, s.requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{key}, ids); diff != "" {
				t.Errorf("ids told (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCallGivesUp(t *testing.T) {
	ignore := func(Event) error { return nil }
	for name, test := range map[string]struct {
		answers []func(http.ResponseWriter)
		is      error
		says    string
		asked   int
	}{
		"a refusal is told and not asked for again": {
			answers: []func(http.ResponseWriter){status(409, `{"title":"Conflict","detail":"same call, other arguments"}`)},
			says:    "the fleet answered 409: same call, other arguments",
			asked:   1,
		},
		"every fault of a request is told": {
			answers: []func(http.ResponseWriter){status(422, `{"detail":"bad","errors":[{"message":"too long","location":"body.timeout"}]}`)},
			says:    "the fleet answered 422: bad; body.timeout: too long",
			asked:   1,
		},
		"a fleet that takes nothing was not there": {
			answers: []func(http.ResponseWriter){status(503, `{"detail":"starting"}`)},
			is:      ErrUnreachable,
			says:    "no fleet to talk to: the fleet answered 503: starting",
			asked:   1,
		},
		"what answers is no fleet": {
			answers: []func(http.ResponseWriter){page(404)},
			is:      ErrUnreachable,
			says:    "no fleet to talk to at URL: what answers there is no fleet (it said 404 and sent text/html); set TOOLFLEET_URL",
			asked:   1,
		},
		"what answers is no fleet, and content": {
			answers: []func(http.ResponseWriter){page(200)},
			is:      ErrUnreachable,
			says:    "no fleet to talk to at URL: what answers there is no fleet (it said 200 and sent text/html); set TOOLFLEET_URL",
			asked:   1,
		},
		"no token": {
			answers: []func(http.ResponseWriter){status(401, `{"detail":"A bearer token is required."}`)},
			says:    "the fleet answered 401: A bearer token is required. None was sent: set TOOLFLEET_TOKEN.",
			asked:   1,
		},
		"a call that is gone while it was followed": {
			answers: []func(http.ResponseWriter){stream(started), status(404, `{"detail":"no such call"}`)},
			says:    "the fleet answered 404: no such call",
			asked:   2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := newFleet(t, test.answers...)
			err := c.Call(t.Context(), request, func(string) {}, ignore)
			if err == nil || strings.ReplaceAll(err.Error(), s.URL, "URL") != test.says {
				t.Errorf("got %v, want %s", err, test.says)
			}
			if got, want := errors.Is(err, ErrUnreachable), test.is != nil; got != want {
				t.Errorf("errors.Is(err, ErrUnreachable) is %v, want %v", got, want)
			}
			if len(s.requests) != test.asked {
				t.Errorf("asked %d times, want %d: %q", len(s.requests), test.asked, s.requests)
			}
		})
	}
}

func TestPatienceEnds(t *testing.T) {
	s, c := newFleet(t, stream(started))
	c.patience = time.Millisecond
	s.answers = append(s.answers, status(503, `{}`), status(503, `{}`), status(503, `{}`), status(503, `{}`))
	err := c.Call(t.Context(), request, func(string) {}, func(Event) error { return nil })
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "has not come back for 1ms") {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
}

// Patience is with the fleet's absence, not with the call's silence: one that
// says nothing new outlives any number of lost connections, however much
// longer than the patience they take together.
func TestQuietCallOutlivesManyConnections(t *testing.T) {
	var answers []func(http.ResponseWriter)
	for range 8 { // with pauses of at least 50 ms between them
		answers = append(answers, stream(started, start, args, argsEnd))
	}
	s, c := newFleet(t, append(answers, stream(started, start, args, argsEnd, result, finished))...)
	c.patience = 200 * time.Millisecond
	if err := c.Call(t.Context(), request, func(string) {}, func(Event) error { return nil }); err != nil {
		t.Errorf("given up after %d connections: %v", len(s.requests), err)
	}
}

// What takes the connection and never says a word of a run is no fleet that
// came back.
func TestPatienceEndsWithWhatSaysNothing(t *testing.T) {
	s, c := newFleet(t, stream(started))
	c.patience = 300 * time.Millisecond
	for range 100 {
		s.answers = append(s.answers, stream())
	}
	err := c.Follow(t.Context(), key, func(Event) error { return nil })
	if !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v after %d connections, want ErrUnreachable", err, len(s.requests))
	}
}

func TestA401TellsWhetherATokenWasSent(t *testing.T) {
	_, c := newFleet(t, status(401, `{"detail":"A bearer token is required."}`))
	c.token = "wrong"
	err := c.Get(t.Context(), "/v1/tools", nil)
	if err == nil || !strings.HasSuffix(err.Error(), "The one that was sent is not known to this fleet: look at TOOLFLEET_TOKEN.") {
		t.Errorf("got %v", err)
	}
}

func TestWhatSpeaksNoHTTPIsNoFleet(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // takes no time that a context could bound
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "INFO {\"server_id\":\"x\"}\r\n")
	})
	defer served.Wait()
	defer l.Close()
	c, err := New("http://"+l.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), "/v1/tools", nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v, want ErrUnreachable", err)
	}
}

func TestNobodyListens(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	c, err := New(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	err = c.Get(t.Context(), "/v1/tools", nil)
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v, want ErrUnreachable with its reason", err)
	}
}

func TestVisitorsErrorEndsTheCall(t *testing.T) {
	full := errors.New("disk full")
	s, c := newFleet(t, stream(started, start, args, argsEnd, result, finished))
	err := c.Call(t.Context(), request, func(string) {}, func(Event) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	if len(s.requests) != 1 {
		t.Errorf("asked %d times", len(s.requests))
	}
}

func TestCancelledContextTellsItsCause(t *testing.T) {
	cause := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, c := newFleet(t, stream(started), stream(started))
	err := c.Call(ctx, request, func(string) {}, func(Event) error {
		cancel(cause)
		return nil
	})
	if !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

func TestFetchStaysOnTheFleetsHost(t *testing.T) {
	s, c := newFleet(t, func(w http.ResponseWriter) { fmt.Fprint(w, "bytes") })
	if _, err := c.Fetch(t.Context(), "http://127.0.0.1:1/secret"); err == nil {
		t.Error("another host was fetched from")
	}
	body, err := c.Fetch(t.Context(), s.URL+"/v1/calls/"+key+"/blobs/0?signature=x")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || string(got) != "bytes" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestNewRefusesWhatIsNoFleet(t *testing.T) {
	for _, u := range []string{"", "127.0.0.1:8080", "ftp://host", "http://"} {
		if _, err := New(u, ""); err == nil {
			t.Errorf("New(%q) was taken", u)
		}
	}
}

// TestSilentStreamIsTakenUpAgain has a connection that brings the head of the
// run and then nothing, not even the comments that a living fleet sends.
func TestSilentStreamIsTakenUpAgain(t *testing.T) {
	gone := make(chan struct{})
	silent := func(w http.ResponseWriter) {
		stream(started, start, args, argsEnd, "#7 "+snapshot)(w)
		w.(http.Flusher).Flush()
		<-gone
	}
	rest := stream(started, start, args, argsEnd, snapshot, "#9 "+result, finished)
	// A machine that stands still for a second may cut a sound connection
	// too; the run is taken up once more then.
	s, c := newFleet(t, silent, rest, rest, rest, rest)
	t.Cleanup(func() { close(gone) })
	c.silence = time.Second
	var got []string
	err := c.Call(t.Context(), request, func(string) {}, func(ev Event) error {
		got = append(got, string(ev.JSON))
		return nil
	})
	if err != nil || got[len(got)-1] != finished {
		t.Errorf("error %v, events %q", err, got)
	}
	if want := []string{sent, "GET /v1/calls/" + key + "/events after 7"}; len(s.requests) < 2 || !slices.Equal(s.requests[:2], want) {
		t.Errorf("the requests are %q, want %q", s.requests, want)
	}
}

// TestEveryPieceOfAStreamIsASignOfLife: comments count, though no event comes
// of them.
func TestEveryPieceOfAStreamIsASignOfLife(t *testing.T) {
	n := 0
	body := &alive{iotest.OneByteReader(strings.NewReader(": alive\n\n")), func() { n++ }}
	if _, err := io.Copy(io.Discard, body); err != nil || n != len(": alive\n\n") {
		t.Errorf("%d signs, %v", n, err)
	}
}
