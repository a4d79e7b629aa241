package agui

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMediaOf(t *testing.T) {
	for data, want := range map[string]string{
		"\x89PNG\r\n\x1a\n":          "image image/png",
		"\xff\xd8\xff\xe0":           "image image/jpeg",
		"GIF89a":                     "image image/gif",
		"RIFF....WEBPVP8 ":           "image image/webp",
		"RIFF....WAVEfmt ":           "audio audio/wav",
		"ID3\x03":                    "audio audio/mpeg",
		"OggS\x00":                   "audio audio/ogg",
		"\x00\x00\x00\x18ftypmp42":   "video video/mp4",
		"\x00\x00\x00\x18ftypM4A ":   "audio audio/mp4",
		"\x1aE\xdf\xa3":              "video video/webm",
		"%PDF-1.7":                   "document application/pdf",
		"PK\x03\x04":                 "document application/zip",
		"plain text, with é":         "document text/plain; charset=utf-8",
		"":                           "document text/plain; charset=utf-8",
		"text\x00with a NUL":         "document application/octet-stream",
		"\xff\xfe\x00\x80\xc3\x28":   "document application/octet-stream",
		strings.Repeat("\x00", 1000): "document application/octet-stream",
	} {
		p := MediaOf([]byte(data))
		if got := p.Type + " " + p.Source.MimeType; got != want {
			t.Errorf("%.20q is %s, want %s", data, got, want)
		}
		if p.Validate() != nil {
			t.Errorf("%.20q: %v", data, p.Validate())
		}
	}
}

func TestContentForms(t *testing.T) {
	image := Media(PartImage, Source{Type: SourceURL, Value: "u"})
	for _, tt := range []struct {
		parts   []Part
		json    string
		text    string
		dropped []string
	}{
		{nil, `""`, "", nil},
		{[]Part{Text("a<b")}, `"a<b"`, "a<b", nil},
		{[]Part{{Type: PartText, Text: "a", ID: "i"}}, `[{"type":"text","id":"i","text":"a"}]`, "a", nil},
		{[]Part{Text("a"), image, Text("b")}, `[{"type":"text","text":"a"},{"type":"image","source":{"type":"url","value":"u"}},{"type":"text","text":"b"}]`, "ab", []string{"image"}},
	} {
		c := ContentOf(tt.parts)
		raw, err := c.MarshalJSON()
		if err != nil || string(raw) != tt.json {
			t.Errorf("%+v is %s, %v, want %s", tt.parts, raw, err, tt.json)
		}
		if text, dropped := c.Flatten(); text != tt.text || cmp.Diff(tt.dropped, dropped) != "" {
			t.Errorf("%s flattens to %q without %q", raw, text, dropped)
		}
		var again Content
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.parts, again.List()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
	for _, raw := range []string{`null`, `7`, `{}`, `[7]`} {
		var c Content
		if err := json.Unmarshal([]byte(raw), &c); err == nil {
			t.Errorf("%s is content", raw)
		}
	}
}

func TestEncodeRefusesWhatIsNotWhole(t *testing.T) {
	for _, e := range []Event{
		Other{Type: "RAW", JSON: json.RawMessage("{")},
		ToolCallResult{Content: Content{Parts: []Part{{Type: PartImage}}}},
		RunStarted{Input: json.RawMessage("nonsense")},
	} {
		if raw, err := Encode(e); err == nil {
			t.Errorf("%#v became %s", e, raw)
		}
	}
}

// Bytes have one type however they are cut.
func TestSnifferInPieces(t *testing.T) {
	for _, whole := range []string{
		"plain", "é€😀", "cut rune \xe2\x82", "\xf0\x9f\x98\x80\xf0", "a\x00b", "\x89PNG\r\n\x1a\nrest", "\x80", "",
	} {
		want := MimeTypeOf([]byte(whole))
		for size := 1; size < 6; size++ {
			var s Sniffer
			for rest := []byte(whole); len(rest) > 0; {
				n := min(size, len(rest))
				_, _ = s.Write(rest[:n])
				rest = rest[n:]
			}
			if got := s.MimeType(); got != want {
				t.Errorf("%q in pieces of %d is %s, want %s", whole, size, got, want)
			}
		}
	}
	if got := MimeTypeOf([]byte("cut rune \xe2\x82")); got != "application/octet-stream" {
		t.Errorf("half a rune is %s", got)
	}
}
