package aguidoor_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch/aguidoor"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
	"github.com/toolfleet/toolfleet/dispatch/httpapi"
)

func TestSilentStreamSaysThatItLives(t *testing.T) {
	d := open(t, fleet(t, nil), func(a *aguidoor.Config, _ *httpapi.Config) { a.KeepAlive = 10 * time.Millisecond })
	s := d.start(direct, input("thread", "run-1", asks("m1", `c1 hang {}`)))
	lines := bufio.NewScanner(s.body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), ": keep-alive") {
			return
		}
	}
	t.Errorf("no comment: %v", lines.Err())
}

// A server that has to go says so: the client would take a stream that just
// ends for one that did what it was for. The calls go on.
func TestShutdownEndsTheRunAndNotTheCall(t *testing.T) {
	f := fleet(t, nil)
	there := open(t, f.Second(t))
	for path, u := range map[string]*upstream{direct: nil, gateway: agent(t, proposes("m1", `c1 hang {}`))} {
		d := open(t, f, func(a *aguidoor.Config, h *httpapi.Config) {
			h.Drain = time.Millisecond
			if u != nil {
				a.Agents = []aguidoor.Agent{{Name: "planner", URL: u.URL}}
			}
		})
		thread := "thread of " + path
		in := input(thread, "run-1", asks("m1", `c1 hang {}`))
		if u != nil {
			in.Messages = []agui.Message{user("do it")}
		}
		s := d.start(path, in)
		s.until("progress", isProgress)
		d.stop()
		s.rest().wantError("shutting_down")
		again := there.start(direct, input(thread, "run-2", asks("m1", `c1 hang {}`)))
		again.until("activity", func(ev agui.Event) bool { return ev.EventType() == agui.TypeActivitySnapshot })
		again.body.Close()
	}
	for _, c := range calls(t, f) {
		if c.Status != call.StatusRunning {
			t.Errorf("%s is %s", c.ToolCallID, c.Status)
		}
	}
}

func TestSilentAgent(t *testing.T) {
	for code, limit := range map[string]aguidoor.Agent{
		"agent_silent":   {Silence: 50 * time.Millisecond},
		"agent_too_much": {Timeout: 50 * time.Millisecond},
	} {
		u := agent(t, func(a *round) { a.begin(); a.wait() })
		limit.Name, limit.URL = "planner", u.URL
		d := open(t, fleet(t, nil), func(a *aguidoor.Config, _ *httpapi.Config) { a.Agents = []aguidoor.Agent{limit} })
		d.runs(gateway, input("thread", "run-1", user("do it"))).wantError(code)
	}
}

// Nobody is there to relay the agent to, so its request ends with the client's;
// the calls it made go on.
func TestClientGoesAwayFromTheGateway(t *testing.T) {
	f := fleet(t, nil)
	gone := make(chan struct{})
	u := agent(t, func(a *round) {
		a.begin()
		a.call("m1", "c1", "hang", `{}`)
		a.wait()
		close(gone)
	})
	d := behind(t, f, u)
	ctx, cancel := context.WithCancel(t.Context())
	d.startWith(ctx, gateway, input("thread", "run-1", user("do it"))).until("progress", isProgress)
	cancel()
	<-gone
	if list := calls(t, f); len(list) != 1 || list[0].Status != call.StatusRunning {
		t.Errorf("%+v", list)
	}
}

// Media go out by URLs that a client without our token can fetch.
func TestMediaURLsNeedNoToken(t *testing.T) {
	picture := bytes.Repeat([]byte("\x89PNG"), 1<<18)
	f := fleet(t, map[string]dispatchtest.Tool{"draw": func(ctx context.Context, r *dispatchtest.Running) call.Result {
		ref := r.Blob(ctx, 1, "image/png", picture)
		return call.Result{Content: []agui.Part{agui.Media(agui.PartImage, agui.Source{Type: agui.SourceURL, Value: ref, MimeType: "image/png"})}}
	}})
	u := agent(t, proposes("m1", `c1 draw {}`), done)
	d := behind(t, f, u, func(_ *aguidoor.Config, h *httpapi.Config) {
		h.TokenFile = tokens(t, "default default-token-0123456789")
	})
	d.header.Set("Authorization", "Bearer default-token-0123456789")
	s := d.runs(gateway, input("thread", "run-1", user("do it")))
	url := s.result("c1").Content.Parts[0].Source.Value
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := d.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || !bytes.Equal(got, picture) {
		t.Errorf("%d, %d bytes, %v", res.StatusCode, len(got), err)
	}
	// So can the agent.
	answer := u.seen()[1].Messages[2].(agui.ToolMessage)
	if answer.Content.Parts[0].Source.Value != url {
		t.Errorf("%+v", answer)
	}
}

// A fleet that cannot take a run says so while there is no stream.
func TestUnavailableIsA503(t *testing.T) {
	f := dispatchtest.Alone(t)
	f.Timeout = 100 * time.Millisecond
	d := behind(t, f, agent(t, done))
	f.NATS.Shutdown()
	for _, path := range []string{direct, gateway} {
		a := d.do(http.MethodPost, path, `{"threadId":"t","runId":"r","messages":[]}`)
		if a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" || a.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v %s", path, a.Status, a.Header, a.Body)
		}
	}
}

// BenchmarkRelay is what one event of an agent costs on its way to the client,
// both connections included.
func BenchmarkRelay(b *testing.B) {
	n := 0
	u := agent(b, func(a *round) {
		a.begin()
		a.json(`{"type":"TEXT_MESSAGE_START","messageId":"m%d","role":"assistant"}`, a.n)
		for range n {
			a.json(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m%d","delta":"word "}`, a.n)
		}
		a.json(`{"type":"TEXT_MESSAGE_END","messageId":"m%d"}`, a.n)
		a.finish()
	})
	d := behind(b, dispatchtest.New(b), u)
	n = b.N
	b.ReportAllocs()
	b.ResetTimer()
	d.runs(gateway, input("thread", "run", user("do it"))).wantSuccess()
}
