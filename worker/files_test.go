package worker

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// bytesOf returns the bytes of a media part, and whether they are in a blob.
func (h *house) bytesOf(job catalog.Job, p agui.Part) (data []byte, inBlob bool) {
	h.Helper()
	var err error
	switch p.Source.Type {
	case agui.SourceData:
		data, err = base64.StdEncoding.DecodeString(p.Source.Value)
	default:
		data, err = h.attempt(job).fetch(h.Context(), p.Source.Value, blob.MaxSize, "")
		inBlob = true
	}
	if err != nil {
		h.Fatal(err)
	}
	return data, inBlob
}

// TestFilesComeBack: files are parts behind the tool's own content, the small
// ones in the event and the large ones in the store, each with what it is.
func TestFilesComeBack(t *testing.T) {
	h := newHouse(t)
	job := h.admit(`cd out; echo said
		printf '\211PNG\r\n\032\nrest' > chart.png
		printf 'a,b\n1,2\n' > table.csv
		head -c 3000000 /dev/zero > zeros
		: > empty
		mkdir deep; echo '{}' > deep/x.json`)
	r := h.run(job)
	wantKind(t, r, "")
	if len(r.Content) != 6 || r.Content[0].Text != "said\n" {
		t.Fatalf("%d parts: %+v", len(r.Content), r.Content)
	}
	for i, want := range []struct {
		name, part, mime, data string
		inBlob                 bool
	}{
		{"chart.png", agui.PartImage, "image/png", "\x89PNG\r\n\x1a\nrest", false},
		{"deep/x.json", agui.PartDocument, "application/json", "{}\n", false},
		{"empty", agui.PartDocument, "text/plain; charset=utf-8", "", false},
		{"table.csv", agui.PartDocument, "text/csv; charset=utf-8", "a,b\n1,2\n", false},
		{"zeros", agui.PartDocument, "application/octet-stream", strings.Repeat("\x00", 3000000), true},
	} {
		p := r.Content[i+1]
		data, inBlob := h.bytesOf(job, p)
		if p.Type != want.part || p.Source.MimeType != want.mime || string(data) != want.data || inBlob != want.inBlob {
			t.Errorf("%s is a %s of %s with %d bytes, in a blob: %v", want.name, p.Type, p.Source.MimeType, len(data), inBlob)
		}
		meta := fmt.Sprintf(`{"filename":%q,"size":%d,"sha256":"%x"}`, want.name, len(want.data), sha256.Sum256([]byte(want.data)))
		if string(p.Metadata) != meta {
			t.Errorf("metadata %s, want %s", p.Metadata, meta)
		}
	}
	if f := r.Execution.Files; f == nil || f.Count != 5 || f.Bytes != 3000023 || f.LeftOut != nil {
		t.Errorf("the execution says %+v", f)
	}
	id, err := blob.Parse(r.Content[5].Source.Value)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := h.Blobs.Stat(t.Context(), id); err != nil || info.Name != "zeros" || info.MimeType != "application/octet-stream" {
		t.Errorf("the blob is %+v, %v", info, err)
	}
}

// TestFilesOfAFailedTool: what is there comes back with the error, and what does
// not is told to the model too.
func TestFilesOfAFailedTool(t *testing.T) {
	h := newHouse(t)
	job := h.admit(`echo half > out/half.txt; ln -s /etc/passwd out/link; exit 3`)
	r := h.run(job)
	wantKind(t, r, call.KindToolError)
	last := r.Content[len(r.Content)-1]
	if data, _ := h.bytesOf(job, last); string(data) != "half\n" {
		t.Errorf("the file holds %q", data)
	}
	if f := r.Execution.Files; f == nil || f.Count != 1 || len(f.LeftOut) != 1 || f.LeftOut[0] != (call.LeftOut{Name: "link", Reason: "is a symbolic link"}) {
		t.Errorf("the execution says %+v", f)
	}
	if len(r.Extra) != 1 || !strings.HasPrefix(r.Extra[0].Text, "\n\n") || !strings.Contains(r.Extra[0].Text, "link is a symbolic link") {
		t.Errorf("extra %+v", r.Extra)
	}
}

// TestFilesNobodyWants: a spec may say that nothing comes back, or less.
func TestFilesNobodyWants(t *testing.T) {
	h := newHouse(t)
	for out, want := range map[catalog.Bytes]int{0: 0, 4: 1} {
		r := h.run(h.admit(`echo one > out/1; head -c 100 /dev/zero > out/2`, func(j *catalog.Job) { j.Spec.Files = &catalog.Files{Out: &out} }))
		wantKind(t, r, "")
		if len(r.Content) != want {
			t.Errorf("out: %d gives %d parts", out, len(r.Content))
		}
	}
}

// TestManyFilesFitAnEvent: a hundred files near the limit of what travels inside
// are more than an event holds, and none is lost.
func TestManyFilesFitAnEvent(t *testing.T) {
	h := newHouse(t)
	job := h.admit(`for i in $(seq 100 199); do head -c 60000 /dev/zero > out/$i; done; head -c 400000 /dev/zero | tr '\0' x`)
	r := h.run(job)
	wantKind(t, r, "")
	if f := r.Execution.Files; f == nil || f.Count != 100 || f.LeftOut != nil || r.Execution.Truncated != nil {
		t.Fatalf("the execution says %+v", r.Execution)
	}
	files := 0
	for _, p := range r.Content {
		var meta struct{ Filename string }
		if json.Unmarshal(p.Metadata, &meta) == nil && meta.Filename != "" {
			files++
			if data, _ := h.bytesOf(job, p); len(data) != 60000 {
				t.Errorf("%s has %d bytes", meta.Filename, len(data))
			}
		}
	}
	if files != 100 {
		t.Errorf("%d files came back", files)
	}
}
