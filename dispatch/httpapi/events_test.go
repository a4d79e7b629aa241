package httpapi_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
)

const wholeRun = "RUN_STARTED TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END ACTIVITY_SNAPSHOT ACTIVITY_SNAPSHOT ACTIVITY_DELTA TOOL_CALL_RESULT RUN_FINISHED"

func TestSubmitStreamsAWholeRun(t *testing.T) {
	d := open(t, fleet(t))
	s := d.stream("POST", "/v1/calls", `{"tool":"echo","arguments":{"text":"hi"},"threadId":"t","runId":"r","toolCallId":"c"}`)
	fs := s.rest()
	verify(t, fs)
	if got := typesOf(fs); got != wholeRun {
		t.Errorf("got  %s\nwant %s", got, wholeRun)
	}
	first := decode[struct {
		ThreadID        string            `json:"threadId"`
		RunID           string            `json:"runId"`
		ProtocolVersion string            `json:"protocolVersion"`
		Metadata        map[string]string `json:"metadata"`
	}](t, fs[0].Data)
	if first.ThreadID != "t" || first.RunID != "r" || first.ProtocolVersion != "1.0" {
		t.Errorf("%+v", first)
	}
	if want := "/v1/calls/" + first.Metadata["toolfleet.call"]; s.res.Header.Get("Location") != want {
		t.Errorf("location %q, want %q", s.res.Header.Get("Location"), want)
	}
	// Ids only stand where a client may resume, and they grow.
	last := 0
	for _, f := range fs {
		if f.ID == "" {
			continue
		}
		n, err := strconv.Atoi(f.ID)
		if err != nil || n <= last {
			t.Errorf("id %q after %d", f.ID, last)
		}
		last = n
	}
	if fs[len(fs)-1].ID == "" || fs[0].ID != "" {
		t.Errorf("the last event has no id, or the first one has: %+v", fs)
	}
	for _, f := range fs {
		if strings.Contains(f.Data, "nonce") {
			t.Errorf("shows what the fleet keeps for itself: %s", f.Data)
		}
	}
}

// TestPain47ProgressArrivesWhileTheToolRuns: the tool goes on only when the
// client has seen what it said.
func TestPain47ProgressArrivesWhileTheToolRuns(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("step", nil))
	next := make(chan struct{})
	f.Work(t, map[string]dispatchtest.Tool{"step": func(ctx context.Context, r *dispatchtest.Running) call.Result {
		for _, said := range []string{"one", "two", "three"} {
			r.Update(said, 1)
			select {
			case <-next:
			case <-ctx.Done():
			}
		}
		return call.Result{}
	}})
	d := open(t, f)
	s := d.stream("POST", "/v1/calls", `{"tool":"step","arguments":{"text":"x"}}`)
	for _, said := range []string{"one", "two", "three"} {
		fs := s.until("ACTIVITY_DELTA")
		if got := fs[len(fs)-1].Data; !strings.Contains(got, said) {
			t.Errorf("got %s, want %s", got, said)
		}
		next <- struct{}{}
	}
	s.until("RUN_FINISHED")
}

func TestStreamResumesAfterLastEventID(t *testing.T) {
	d := open(t, fleet(t))
	whole := d.stream("POST", "/v1/calls", `{"tool":"echo","arguments":{"text":"hi"}}`)
	fs := whole.rest()
	events := whole.res.Header.Get("Location") + "/events"
	if got := typesOf(d.stream("GET", events, "").rest()); got != wholeRun {
		t.Errorf("from the beginning: %s", got)
	}
	var last string
	for _, f := range fs {
		if f.ID == "" || f.Type == "RUN_FINISHED" {
			last = f.ID
			continue
		}
		resumed := d.stream("GET", events, "", "Last-Event-ID: "+f.ID).rest()
		verify(t, resumed)
		got := typesOf(resumed)
		if !strings.HasPrefix(got, "RUN_STARTED TOOL_CALL_START TOOL_CALL_ARGS TOOL_CALL_END ACTIVITY_SNAPSHOT ") || !strings.HasSuffix(got, " TOOL_CALL_RESULT RUN_FINISHED") {
			t.Errorf("after %s: %s", f.ID, got)
		}
	}
	if a := d.do("GET", events, "", "Last-Event-ID: "+last); a.Status != http.StatusNoContent || a.Body != "" {
		t.Errorf("after the end: %d %s", a.Status, a.Body)
	}
	d.wantProblem(d.do("GET", events, "", "Last-Event-ID: x"), http.StatusBadRequest)
}

func TestClientThatGoesAwayCancelsNothing(t *testing.T) {
	f := dispatchtest.New(t, dispatchtest.Spec("wait", nil))
	goOn := make(chan struct{})
	f.Work(t, map[string]dispatchtest.Tool{"wait": func(ctx context.Context, r *dispatchtest.Running) call.Result {
		r.Update("working", 1)
		select {
		case <-goOn:
			return call.Result{Content: []agui.Part{agui.Text("done")}}
		case <-ctx.Done():
			return call.Result{Content: []agui.Part{agui.Text("stopped")}}
		}
	}})
	d := open(t, f)
	s := d.stream("POST", "/v1/calls", `{"tool":"wait","arguments":{"text":"x"}}`)
	fs := s.until("ACTIVITY_DELTA")
	s.res.Body.Close()
	location := s.res.Header.Get("Location")

	again := d.stream("GET", location+"/events", "", "Last-Event-ID: "+fs[len(fs)-1].ID)
	again.until("ACTIVITY_SNAPSHOT")
	close(goOn)
	again.until("RUN_FINISHED")
	if got := decode[callBody](t, d.do("GET", location, "").Body); got.text() != "done" {
		t.Errorf("%+v", got)
	}
}

func TestSilentStreamIsKeptAlive(t *testing.T) {
	d := open(t, dispatchtest.New(t, dispatchtest.Spec("echo", nil)), func(c *httpapi.Config) { c.KeepAlive = time.Millisecond })
	s := d.stream("POST", "/v1/calls", `{"tool":"echo","arguments":{"text":"x"}}`)
	s.until("ACTIVITY_SNAPSHOT")
	for range 3 {
		f, err := s.next()
		if err != nil || f.Comment != "keep-alive" || f.Type != "" {
			t.Fatalf("%+v, %v", f, err)
		}
	}
	d.do("DELETE", s.res.Header.Get("Location"), "")
	s.until("RUN_FINISHED")
}

func TestShutdownEndsStreamsAndWaits(t *testing.T) {
	d := open(t, fleet(t), func(c *httpapi.Config) { c.Drain = time.Millisecond })
	s := d.stream("POST", "/v1/calls", `{"tool":"hang","arguments":{"text":"x"}}`)
	s.until("ACTIVITY_DELTA")
	waiting := make(chan answer, 1)
	req := d.request("POST", "/v1/calls", `{"tool":"hang","arguments":{"text":"x"},"runId":"waits","threadId":"t","toolCallId":"c"}`)
	go func() { waiting <- d.send(req) }()
	for d.do("GET", "/v1/calls/"+string(call.MakeKey("default", "t", "waits", "c")), "").Status != 200 {
	}
	d.stop()
	if got := typesOf(s.rest()); strings.Contains(got, "RUN_") {
		t.Errorf("a cut stream says that the run is over: %s", got)
	}
	a := <-waiting
	if d.wantProblem(a, http.StatusServiceUnavailable); a.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After: %v", a.Header)
	}
}
