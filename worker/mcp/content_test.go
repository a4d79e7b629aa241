package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/sandbox"
)

// read makes a result of what a server answered.
func read(raw []byte) (*call.Result, error) {
	var r mcp.CallToolResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	return resultOf(&r, raw), nil
}

const png = "\x89PNG\r\n\x1a\n and so on"

// TestContent: every kind of content block, and what becomes of it.
func TestContent(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, c := range map[string]struct{ blocks, want string }{
		"text":                        {`{"type":"text","text":"a <b>"}`, `{"type":"text","text":"a <b>"}`},
		"empty text":                  {`{"type":"text","text":""}`, `{"type":"text","text":""}`},
		"image":                       {`{"type":"image","mimeType":"image/png","data":"` + b64(png) + `"}`, `{"type":"image","source":{"type":"data","value":"` + b64(png) + `","mimeType":"image/png"}}`},
		"image that is another":       {`{"type":"image","mimeType":"image/jpeg","data":"` + b64(png) + `"}`, `{"type":"image","source":{"type":"data","value":"` + b64(png) + `","mimeType":"image/png"}}`},
		"image of text":               {`{"type":"image","mimeType":"image/svg+xml","data":"` + b64("<svg/>") + `"}`, `{"type":"image","source":{"type":"data","value":"` + b64("<svg/>") + `","mimeType":"image/svg+xml"}}`},
		"image that is none":          {`{"type":"image","mimeType":"text/html","data":"` + b64("<p>") + `"}`, `{"type":"document","source":{"type":"data","value":"` + b64("<p>") + `","mimeType":"text/plain; charset=utf-8"}}`},
		"image of nonsense":           {`{"type":"image","mimeType":"image/x\r\nSet-Cookie: a","data":"AAAA"}`, `{"type":"document","source":{"type":"data","value":"AAAA","mimeType":"application/octet-stream"}}`},
		"image of nothing":            {`{"type":"image","mimeType":"image/png","data":""}`, ``},
		"audio":                       {`{"type":"audio","mimeType":"audio/x-raw","data":"AAAA"}`, `{"type":"audio","source":{"type":"data","value":"AAAA","mimeType":"audio/x-raw"}}`},
		"resource, text":              {`{"type":"resource","resource":{"uri":"x:1","mimeType":"text/plain","text":"t"}}`, `{"type":"text","text":"t","metadata":{"toolfleet.resource":{"uri":"x:1","mimeType":"text/plain"}}}`},
		"resource, blob":              {`{"type":"resource","resource":{"uri":"x:1","mimeType":"video/x","blob":"AAAA"}}`, `{"type":"video","source":{"type":"data","value":"AAAA","mimeType":"video/x"},"metadata":{"toolfleet.resource":{"uri":"x:1","mimeType":"video/x"}}}`},
		"resource, none":              {`{"type":"resource"}`, ``},
		"link to the web":             {`{"type":"resource_link","uri":"https://example.com/a.png","name":"a","mimeType":"image/png"}`, `{"type":"image","source":{"type":"url","value":"https://example.com/a.png","mimeType":"image/png"},"metadata":{"toolfleet.resource":{"uri":"https://example.com/a.png","name":"a","mimeType":"image/png"}}}`},
		"link elsewhere":              {`{"type":"resource_link","uri":"file:///etc/passwd","name":"p","description":"d"}`, `{"type":"text","text":"Resource p: file:///etc/passwd\nd","metadata":{"toolfleet.resource":{"uri":"file:///etc/passwd","name":"p","description":"d"}}}`},
		"link to a blob of the fleet": {`{"type":"resource_link","uri":"blob:other/x/1","name":"p"}`, `{"type":"text","text":"Resource p: blob:other/x/1","metadata":{"toolfleet.resource":{"uri":"blob:other/x/1","name":"p"}}}`},
		"a kind of sampling":          {`{"type":"tool_use","id":"1","name":"x","input":{}}`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := read([]byte(`{"content":[` + c.blocks + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, p := range r.Content {
				raw, err := p.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				got += string(raw)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if (got == "") != (len(r.Dropped) == 1) {
				t.Errorf("dropped: %q", r.Dropped)
			}
		})
	}
}

// TestStructuredContent: it is told when no text says it.
func TestStructuredContent(t *testing.T) {
	for _, c := range []struct{ texts, structured, want string }{
		{`"{ \"a\": 1, \"b\": [2] }"`, `{"b":[2],"a":1}`, `{ "a": 1, "b": [2] }`},
		{`"plain"`, `{"content":"plain"}`, "plain"},
		{`"plain"`, `{"content": "other"}`, `plain{"content":"other"}`},
		{`"plain"`, `{"n": 12345678901234567890.10}`, `plain{"n":12345678901234567890.10}`},
		{`"plain"`, `null`, "plain"},
		{`"1.0"`, `1`, "1.01"},
	} {
		r, err := read([]byte(`{"content":[{"type":"text","text":` + c.texts + `}],"structuredContent":` + c.structured + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := (agui.Content{Parts: r.Content}).Flatten(); got != c.want {
			t.Errorf("%s beside %s: %q, want %q", c.texts, c.structured, got, c.want)
		}
	}
}

// FuzzContent: whatever a server answers, what comes of it may go out.
func FuzzContent(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"a"},{"type":"image","mimeType":"image/png","data":"AAAA"}],"structuredContent":{"a":1}}`,
		`{"content":[{"type":"resource","resource":{"uri":"x:1","blob":"AAAA"}},{"type":"resource_link","uri":"http://x/","name":"\ud800"}],"isError":true}`,
		`{"content":[null]}`, `{"content":[{"type":"audio","data":"!"}]}`, `{"structuredContent":[[[[]]]]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := read(raw)
		if err != nil {
			return
		}
		for _, p := range r.Content {
			if err := p.Validate(); err != nil {
				t.Errorf("%+v: %v", p, err)
			}
			if s := p.Source; s != nil && s.Type == agui.SourceURL && !strings.HasPrefix(strings.ToLower(s.Value), "http") {
				t.Errorf("a client would fetch %q", s.Value)
			}
		}
		if _, err := json.Marshal(r.Contents()); err != nil {
			t.Error(err)
		}
	})
}

// FuzzServer: whatever a server writes, its call has one end.
func FuzzServer(f *testing.F) {
	hello := `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-03-26","capabilities":{}}}` + "\n"
	for _, seed := range []string{
		hello + `{"jsonrpc":"2.0","id":2,"result":{"content":[]}}` + "\n",
		hello + `[{"jsonrpc":"2.0","id":7,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]` + "\n" + `[{"jsonrpc":"2.0","id":2,"result":{}}]`,
		hello + `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"call","progress":1e308}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"m","data":{"supported":["2026-07-28"]}}}` + "\n",
		hello + `{"jsonrpc":"2.0","id":2,"result":null}`, hello + `{"jsonrpc":"2.0","id":2}`,
		hello + `{"jsonrpc":"2.0","id":2,"result":{"content":null,"structuredContent":` + strings.Repeat(`{"a":`, 990) + "1" + strings.Repeat("}", 990) + `}}`,
		hello + `{"jsonrpc":"2.0","id":2,"result":{"content":[null,{"type":"resource","resource":null},{"type":"resource","resource":{"contents":[]}}]}}`,
		hello + `{"jsonrpc":"2.0","id":2.5,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":{"a":1},"result":{}}`,
		hello + `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}` + "\n" + `{"jsonrpc":"2.0","id":2,"error":null,"result":{"content":"x"}}`,
		"\x00\xff", "[]", "{}", `{"jsonrpc":"2.0","id":null,"method":"ping"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		synctest.Test(t, func(t *testing.T) {
			run := func(_ context.Context, p sandbox.Process, sink sandbox.Sink) (sandbox.Exit, error) {
				go func() {
					for range p.Input { // a server that reads, and no more
					}
				}()
				sink.Stdout(said)
				synctest.Wait() // until the client waits for more
				return sandbox.Exit{Cause: sandbox.CauseExited}, nil
			}
			answer, exit, err := Call(t.Context(), run, sandbox.Process{Stdin: []byte("{}")}, sandbox.Sink{}, "t")
			if err != nil || (answer == nil) != (exit.Cause != sandbox.CauseExited) {
				t.Errorf("answer %v, cause %q, %v", answer, exit.Cause, err)
			}
		})
	})
}
