package worker

import (
	"bytes"
	"testing"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
)

// bring puts files of a call into the store and into the job.
func (h *house) bring(files map[string][]byte) func(*catalog.Job) {
	return func(j *catalog.Job) {
		h.Helper()
		for name, data := range files {
			id := blob.ID{Tenant: j.Call.Tenant, Key: j.Call.Key(), N: len(j.Call.Files) + 1}
			info, err := h.Blobs.Put(h.Context(), id, "text/plain", data)
			if err != nil {
				h.Fatal(err)
			}
			j.Call.Files = append(j.Call.Files, call.File{Name: name, MimeType: "text/plain", Size: info.Size, Digest: info.Digest, Blob: id.String()})
		}
	}
}

func TestFilesOfTheCall(t *testing.T) {
	h := newHouse(t)
	big := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	r := h.run(h.admit(`cat in/small; wc -c < in/big; mv in/big out/`, h.bring(map[string][]byte{"small": []byte("hello "), "big": big})))
	wantKind(t, r, "")
	if got := words(t, call.Result{Content: r.Content[:1]}); got != "hello 1600000\n" {
		t.Errorf("the tool said %q", got)
	}
	if f := r.Execution.Files; f == nil || f.Bytes != int64(len(big)) {
		t.Errorf("the execution says %+v", f)
	}
}

// TestLostFile: a call whose file is not there any more starts nothing, and is
// answered when its attempts are spent.
func TestLostFile(t *testing.T) {
	h := newHouse(t)
	job := h.admit(`cat in/*`, h.bring(map[string][]byte{"a": []byte("x")}), func(j *catalog.Job) {
		j.Call.Files[0].Blob = blob.ID{Tenant: j.Call.Tenant, Key: j.Call.Key(), N: 9}.String()
	})
	for range call.MaxAttempts - 1 {
		if err := h.deliver(t.Context(), job); err == nil {
			t.Fatal("the delivery was acknowledged")
		}
	}
	wantKind(t, h.run(job), call.KindInternal)
	if n := h.pool.started.Load(); n != 0 {
		t.Errorf("%d sandboxes were started", n)
	}
	for what, spoil := range map[string]func(*call.File){
		"another tenant's": func(f *call.File) { f.Blob = blob.ID{Tenant: "other", Key: job.Call.Key(), N: 1}.String() },
		"another file":     func(f *call.File) { f.Digest = call.Digest("y") },
	} {
		job := h.admit(`cat in/*`, h.bring(map[string][]byte{"a": []byte("x")}), func(j *catalog.Job) { spoil(&j.Call.Files[0]) })
		if err := h.deliver(t.Context(), job); err == nil {
			t.Errorf("%s: the delivery was acknowledged", what)
		}
	}
}
