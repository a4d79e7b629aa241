package httpapi

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
)

// FuzzDecodeRequest: whatever comes, decoding does not fail over it, an error
// is short and in UTF-8, and what is taken makes a call that survives a second
// reading.
func FuzzDecodeRequest(f *testing.F) {
	for _, seed := range []string{
		`{"tool":"echo","arguments":{"text":"x"}}`,
		`{"tool":"echo","arguments":"{\"text\":\"x\"}","toolCallId":"c","threadId":"t","runId":"r","timeout":"10s","priority":"batch"}`,
		`{"tool":"echo","arguments":{"a":{"a":[1,2.5e300,null,true]}}}`,
		`{"tool":"echo","tool":"echo"}`, `{"Tool":1}`, `[]`, `{`, ``, "\xff", `{"tool":"\ud800","arguments":{}}`,
	} {
		f.Add([]byte(seed), "key")
	}
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		req, err := decodeRequest(body)
		if err != nil {
			if !utf8.ValidString(err.Error()) || len(err.Error()) > 10_000 {
				t.Errorf("error of %d bytes: %q", len(err.Error()), err)
			}
			return
		}
		c, err := makeCall(req, "default", key, "")
		if err != nil {
			return
		}
		if c.ThreadID == "" || c.RunID == "" || c.ToolCallID == "" || c.Scope == "" {
			t.Errorf("ids are missing: %+v", c)
		}
		back, err := json.Marshal(map[string]any{
			"tool": req.Tool, "arguments": req.Arguments, "toolCallId": c.ToolCallID, "threadId": c.ThreadID, "runId": c.RunID,
		})
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeRequest(back)
		if err != nil || again.Tool != req.Tool || again.Arguments != req.Arguments {
			t.Errorf("%q read again: %+v, %v", back, again, err)
		}
	})
}

// FuzzSignedURL: no request but the one that was signed is let in.
func FuzzSignedURL(f *testing.F) {
	s := newSigner(make([]byte, minSigningKey), time.Hour)
	s.now = func() time.Time { return time.Unix(1_000_000, 0) }
	id := blob.ID{Tenant: "acme", Key: call.MakeKey("a", "b", "c", "d"), N: 7}
	good := strings.TrimPrefix(s.url("http://x", id), "http://x")
	f.Add(good)
	f.Add(good + "&tenant=other")
	f.Add(strings.Replace(good, "/blobs/7", "/blobs/8", 1))
	f.Add("/v1/calls?signature=x")
	f.Fuzz(func(t *testing.T, target string) {
		r, ok := newRequest(target)
		if !ok {
			return
		}
		tenant, ok := s.tenant(r)
		if !ok {
			if target == good {
				t.Error("the signed URL is not let in")
			}
			return
		}
		if want := "/v1/calls/" + string(id.Key) + "/blobs/7"; tenant != "acme" || r.URL.Path != want {
			t.Errorf("%s is let in as %s", target, tenant)
		}
	})
}

func TestWantsStream(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "text/event-stream": true,
		"application/json, Text/Event-Stream;q=0.9": true, "text/event-stream; q=0": false, "text/event-streams": false,
	} {
		if got := wantsStream(accept); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
}

func TestTraceparentOf(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for h, want := range map[string]string{good: good, "": "", good + "x": "", strings.ToUpper(good): "", strings.Replace(good, "-", "_", 1): ""} {
		if got := traceparentOf(h); got != want {
			t.Errorf("%q: %q", h, got)
		}
	}
}

func TestSafeType(t *testing.T) {
	for in, want := range map[string]string{
		"image/png": "image/png", "text/plain; charset=utf-8": "text/plain; charset=utf-8",
		"": "application/octet-stream", "x\r\nSet-Cookie: a=b": "application/octet-stream", "a/b; c": "application/octet-stream", "é/x": "application/octet-stream",
	} {
		if got := safeType(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
