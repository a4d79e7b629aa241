package tool

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/agui"
)

func TestDecodeUpdate(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Update
	}{
		{`{"type":"update"}`, Update{}},
		{`{"type":"update","current":3,"total":20,"message":"reading"}`, Update{Current: 3, Total: 20, Message: "reading"}},
		{`{"type":"update","content":"so far"}`, Update{Content: []agui.Part{agui.Text("so far")}}},
		{`{"type":"update","content":null}`, Update{}},
		{`{"type":"update","message":"` + strings.Repeat("é", 600) + `"}`, Update{Message: strings.Repeat("é", 512) + "…"}},
	} {
		got, err := DecodeUpdate([]byte(tt.in))
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", tt.in, err, diff)
		}
	}
}

func TestDecodeResult(t *testing.T) {
	image := agui.Media(agui.PartImage, agui.Source{Type: agui.SourceURL, Value: "https://example.com/a.png", MimeType: "image/png"})
	for _, tt := range []struct {
		name, in string
		want     Result
	}{
		{
			"whole", `{"type":"result","call_id":"c","content":[{"type":"text","text":"a","metadata":null}],"is_error":true,"extra":[{"type":"text","text":"b"}]}`,
			Result{Content: []agui.Part{agui.Text("a")}, IsError: true, Extra: []agui.Part{agui.Text("b")}},
		},
		{"empty", `{"type":"result"}`, Result{}},
		{"a string", `{"type":"result","content":"a"}`, Result{Content: []agui.Part{agui.Text("a")}}},
		{"unusable parts are left out", `{"type":"result","content":[
			{"type":"hologram"},
			{"type":"text","text":"a"},
			{"type":"image","source":{"type":"file","value":"file-1"}},
			{"type":"image"},
			{"type":"image","source":{"type":"data","value":"!","mimeType":"image/png"}},
			{"type":"image","source":{"type":"data","value":"AAAA"}},
			{"type":"image","source":{"type":"url","value":"toolfleet-blob:other/aaaaaaaaaaaaaaaaaaaaaaaaaa/0"}},
			{"type":"image","source":{"type":"url","value":"file:///etc/passwd"}},
			{"type":"image","source":{"type":"url","value":"https://example.com/a.png","mimeType":"image/png"}}
		],"extra":[{"type":"code"}]}`, Result{Content: []agui.Part{agui.Text("a"), image}, Dropped: []string{
			"part 0: unknown part type", "part 2: the file handle has no provider or is too long", "part 3: media part without a source", "part 4: the data is not base64",
			"part 5: data source without a mimeType", "part 6: the url is not an http or https one", "part 7: the url is not an http or https one", "part 0: unknown part type",
		}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := DecodeResult([]byte(tt.in))
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for in, want := range map[string]string{
		``:                                   "is empty",
		`this is no message`:                 "is not JSON",
		`[]`:                                 "malformed",
		`{"type":"update"}`:                  "is no result",
		`{}`:                                 "is no result",
		`{"type":"result","type":"update"}`:  "/type: is given twice",
		`{"type":"result","contents":[]}`:    "unknown field",
		`{"type":"result","execution":{}}`:   "unknown field",
		`{"type":"result","content":7}`:      "malformed",
		`{"type":"result","content":[7]}`:    "malformed",
		`{"type":"result","is_error":"yes"}`: "malformed",
		`{"type":"result","content":"` + "\xff" + `"}`:                          "not UTF-8",
		`{"type":"result","content":"` + strings.Repeat("x", MaxMessage) + `"}`: "at most",
	} {
		if _, err := DecodeResult([]byte(in)); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "tool: ") {
			t.Errorf("%.60s: error %v, want %q", in, err, want)
		}
	}
	if _, err := DecodeUpdate([]byte(`{"type":"update","current":1e999}`)); err == nil {
		t.Error("a number out of range was accepted")
	}
}

func TestDecodeParts(t *testing.T) {
	got, dropped, err := DecodeParts([]byte(`[{"type":"hologram"},{"type":"text","text":"a"},{"type":"image","source":{"type":"file","value":"f"}}]` + "\n"))
	if diff := cmp.Diff([]agui.Part{agui.Text("a")}, got); diff != "" || len(dropped) != 2 || err != nil {
		t.Errorf("error %v, dropped %q (-want +got):\n%s", err, dropped, diff)
	}
	for _, in := range []string{"", "text", "{}", `["a"]`} {
		if _, _, err := DecodeParts([]byte(in)); err == nil {
			t.Errorf("%q was accepted", in)
		}
	}
}

// FuzzDecode holds that what a tool sends is refused or usable, whatever it is.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"type":"result","content":[{"type":"image","source":{"type":"data","value":"AAAA","mimeType":"image/png"}}],"is_error":true,"extra":[{"type":"text","text":"b","metadata":{"a":1}}]}`))
	f.Add([]byte(`{"type":"update","content":"x","current":1,"total":2,"message":"m"}`))
	f.Add([]byte(`[{"type":"text","text":"a"}]`))
	f.Add([]byte(`{"type":"result","content":[{"type":"image","source":{"type":"data","value":"0000","mimeType":"0"},"text":"0"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		sound := func(parts []agui.Part) {
			for _, p := range parts {
				if err := p.Validate(); err != nil {
					t.Errorf("part %+v: %v", p, err)
				}
			}
			if _, err := json.Marshal(parts); err != nil {
				t.Error(err)
			}
		}
		if u, err := DecodeUpdate(raw); err == nil {
			sound(u.Content)
			if len(u.Message) > maxText+len("…") {
				t.Errorf("a message of %d bytes", len(u.Message))
			}
		}
		if parts, _, err := DecodeParts(raw); err == nil {
			sound(parts)
		}
		r, err := DecodeResult(raw)
		if err != nil {
			return
		}
		sound(r.Contents())
		line, err := encodeResult(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeResult(line)
		if err != nil && len(line) <= MaxMessage {
			t.Fatalf("%s: %v", line, err)
		}
		r.Dropped = nil
		if diff := cmp.Diff(r, again); diff != "" && len(line) <= MaxMessage {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	})
}

// TestListsAreBounded: a list is refused before it is held, wherever it stands.
func TestListsAreBounded(t *testing.T) {
	list := func(n int) string { return "[" + strings.Repeat("{},", n-1) + "{}]" }
	long, most := list(MaxMessage/3-20), list(MaxParts)
	for name, read := range map[string]func(list string) error{
		"update": func(l string) error {
			_, err := DecodeUpdate([]byte(`{"type":"update","content":` + l + `}`))
			return err
		},
		"result": func(l string) error {
			_, err := DecodeResult([]byte(`{"type":"result","content":` + l + `}`))
			return err
		},
		"extra": func(l string) error {
			_, err := DecodeResult([]byte(`{"type":"result","extra":` + l + `}`))
			return err
		},
		"stdout": func(l string) error { _, _, err := DecodeParts([]byte(l)); return err },
	} {
		if err := read(most); err != nil {
			t.Errorf("%s: %d parts: %v", name, MaxParts, err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		err := read(long)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "more than 20000 parts") {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%s: %d bytes were allocated to refuse it", name, took)
		}
	}
}
