package aguidoor_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
)

// attached is a user's message with media.
func attached(id string, parts ...agui.Part) agui.Message {
	return agui.UserMessage{MessageBase: agui.MessageBase{ID: id}, Content: agui.Content{Parts: parts}}
}

func media(mimeType, data, filename string) agui.Part {
	p := agui.Media(agui.PartTypeOf(mimeType), agui.Source{Type: agui.SourceData, MimeType: mimeType, Value: base64.StdEncoding.EncodeToString([]byte(data))})
	if filename != "" {
		p.Metadata, _ = json.Marshal(map[string]string{"filename": filename})
	}
	return p
}

// TestAttachmentsComeAlong: the media of the message that a call answers are
// files of the call, where its tool asks for their type, and nothing else is.
func TestAttachmentsComeAlong(t *testing.T) {
	see := func(_ context.Context, r *dispatchtest.Running) call.Result {
		var lines []string
		for _, f := range r.Call.Files {
			lines = append(lines, fmt.Sprintf("%s %s %d", f.Name, f.MimeType, f.Size))
		}
		return call.Result{Content: []agui.Part{agui.Text(strings.Join(lines, "\n"))}}
	}
	f := dispatchtest.New(t, dispatchtest.Spec("see", func(s *catalog.Spec) {
		s.Parameters = []byte(`{"type":"object"}`)
		s.Files = &catalog.Files{In: &[]string{"image/*", "application/pdf"}}
	}), dispatchtest.Spec("tight", func(s *catalog.Spec) {
		s.Parameters, s.Limits.Disk = []byte(`{"type":"object"}`), 8<<20
		s.Files = &catalog.Files{In: &[]string{"*/*"}}
	}), dispatchtest.Spec("blind", func(s *catalog.Spec) { s.Parameters = []byte(`{"type":"object"}`) }))
	f.Work(t, map[string]dispatchtest.Tool{"see": see, "blind": see, "tight": see})
	d := open(t, f)
	elsewhere := agui.Media(agui.PartImage, agui.Source{Type: agui.SourceURL, MimeType: "image/png", Value: "http://169.254.169.254/x.png"})
	messages := []agui.Message{
		attached("u0", media("image/png", "old", "old.png")),
		asks("m0", `c0 see {}`),
		agui.Answered("t0", "c0", agui.Content{Text: "done"}),
		attached("u1", agui.Text("look"), media("image/png", "one", "../../etc/pic.png"), media("text/plain", "no", "no.txt"),
			media("image/png", "two", "pic.png"), media("application/pdf", "three", ""), elsewhere, media("image/\u00e9", "four", "odd.png")),
		asks("m1", `c1 see {}`, `c2 blind {}`),
	}
	s := d.runs(direct, input("thread", "run-1", messages...))
	s.wantSuccess()
	want := "pic.png image/png 3\n4-pic.png image/png 3\nattachment-5.pdf application/pdf 5"
	if got := s.text("c1"); got != want {
		t.Errorf("it saw %q, want %q", got, want)
	}
	if got := s.text("c2"); got != "" {
		t.Errorf("a tool that asks for nothing saw %q", got)
	}
	// What is more than half of the disk does not come along, and costs nothing.
	large := attached("u2", media("image/png", strings.Repeat("x", 5<<20), "large.png"), media("image/png", "x", "small.png"))
	s = d.runs(direct, input("thread-2", "run-1", large, asks("m1", `c1 tight {}`)))
	s.wantSuccess()
	if got := s.text("c1"); got != "small.png image/png 1" {
		t.Errorf("with little room it saw %q", got)
	}
	// A name that is made up is no other's.
	twins := attached("u3", media("image/png", "x", "a.png"), media("image/png", "xx", "3-a.png"), media("image/png", "xxx", "a.png"))
	s = d.runs(direct, input("thread-3", "run-1", twins, asks("m1", `c1 see {}`)))
	s.wantSuccess()
	if got, want := s.text("c1"), "a.png image/png 1\n3-a.png image/png 2\n4-a.png image/png 3"; got != want {
		t.Errorf("of twins it saw %q, want %q", got, want)
	}
	// The conversation in another shape still leads to the same call.
	messages[3] = attached("u1", agui.Text("look"))
	s = d.runs(direct, input("thread", "run-2", messages...))
	s.wantSuccess()
	if got := s.text("c1"); got != want {
		t.Errorf("met again it saw %q", got)
	}
}
