package httpapi_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/dispatch/dispatchtest"
)

// filesFleet has a tool that says which files it got, one that takes pictures
// only, and one that draws.
func filesFleet(t *testing.T) *dispatchtest.Fleet {
	t.Helper()
	anything := func(s *catalog.Spec) { s.Parameters = []byte(`{"type":"object"}`) }
	f := dispatchtest.New(t, dispatchtest.Spec("see", anything), dispatchtest.Spec("draw", anything), dispatchtest.Spec("look", func(s *catalog.Spec) {
		anything(s)
		s.Files = &catalog.Files{In: &[]string{"image/*"}}
	}))
	see := func(_ context.Context, r *dispatchtest.Running) call.Result {
		var lines []string
		for _, f := range r.Call.Files {
			lines = append(lines, fmt.Sprintf("%s %s %d %s", f.Name, f.MimeType, f.Size, strings.TrimPrefix(f.Blob, "toolfleet-blob:"+r.Call.Tenant+"/")))
		}
		return call.Result{Content: []agui.Part{agui.Text(strings.Join(lines, "\n"))}}
	}
	f.Work(t, map[string]dispatchtest.Tool{"see": see, "look": see, "draw": draw})
	return f
}

func encoded(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestFilesOfACall(t *testing.T) {
	f := filesFleet(t)
	d := open(t, f)
	files := `[{"name":"a b.txt","data":"` + encoded("hello") + `"},{"name":"p","mimeType":"image/png","data":"` + encoded("x") + `"}]`
	got := d.call(200, "/v1/calls", `{"tool":"see","arguments":{},"files":`+files+`}`, "Idempotency-Key: k")
	want := "a b.txt text/plain; charset=utf-8 5 " + got.ID + "/1\np image/png 1 " + got.ID + "/2"
	if got.Result.Content[0].Text != want {
		t.Errorf("it saw %q, want %q", got.Result.Content[0].Text, want)
	}
	info, err := f.Blobs.Stat(t.Context(), blob.ID{Tenant: call.DefaultTenant, Key: call.Key(got.ID), N: 1})
	if err != nil || info.Digest != call.Digest("hello") {
		t.Errorf("the blob is %+v, %v", info, err)
	}
	if again := d.call(200, "/v1/calls", `{"tool":"see","arguments":{},"files":`+files+`}`, "Idempotency-Key: k"); again.ID != got.ID {
		t.Errorf("the same again is %s", again.ID)
	}
	for name, other := range map[string]string{
		"other bytes": strings.Replace(files, encoded("hello"), encoded("hullo"), 1),
		"other name":  strings.Replace(files, "a b.txt", "c", 1),
		"other type":  strings.Replace(files, "image/png", "image/gif", 1),
		"fewer":       "[]",
	} {
		a := d.do("POST", "/v1/calls", `{"tool":"see","arguments":{},"files":`+other+`}`, "Idempotency-Key: k")
		if a.Status != http.StatusConflict {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	// Without any, too.
	d.wantProblem(d.do("POST", "/v1/calls", `{"tool":"see","arguments":{}}`, "Idempotency-Key: k"), http.StatusConflict)
}

// TestFilesWithoutBytes: a file of nothing is a file, also when the call brings no
// other.
func TestFilesWithoutBytes(t *testing.T) {
	f := filesFleet(t)
	d := open(t, f)
	got := d.call(200, "/v1/calls", `{"tool":"see","arguments":{},"files":[{"name":"a","data":""}]}`)
	if want := "a text/plain; charset=utf-8 0 " + got.ID + "/1"; got.Result.Content[0].Text != want {
		t.Errorf("it saw %q, want %q", got.Result.Content[0].Text, want)
	}
	info, err := f.Blobs.Stat(t.Context(), blob.ID{Tenant: call.DefaultTenant, Key: call.Key(got.ID), N: 1})
	if err != nil || info.Size != 0 {
		t.Errorf("the blob is %+v, %v", info, err)
	}
}

// TestFileOfAnEarlierResult: a part of a result is a file of the next call, by
// its URL, and nobody else's.
func TestFileOfAnEarlierResult(t *testing.T) {
	d := open(t, filesFleet(t), withTokens(t, "acme "+acme, "other "+other))
	mine, theirs := "Authorization: Bearer "+acme, "Authorization: Bearer "+other
	drawn := d.call(200, "/v1/calls", `{"tool":"draw","arguments":{}}`, mine)
	url := drawn.Result.Content[0].Source.Value
	bare, _, _ := strings.Cut(url, "?")
	path := strings.TrimPrefix(bare, d.server.URL())
	body := func(url string) string {
		return `{"tool":"see","arguments":{},"files":[{"name":"page","url":"` + url + `"}]}`
	}
	for _, url := range []string{url, bare, path} {
		got := d.call(200, "/v1/calls", body(url), mine)
		if want := fmt.Sprintf("page text/html %d %s/1", len(page), drawn.ID); got.Result.Content[0].Text != want {
			t.Errorf("%s: it saw %q, want %q", url, got.Result.Content[0].Text, want)
		}
	}
	for name, url := range map[string]string{
		"another host":     "http://169.254.169.254" + path,
		"a longer host":    strings.Replace(bare, "/v1/", "/elsewhere/v1/", 1),
		"another path":     strings.Replace(bare, "/blobs/", "/events/", 1),
		"another spelling": strings.Replace(bare, "/blobs/1", "/blobs/01", 1),
		"not there":        strings.Replace(bare, "/blobs/1", "/blobs/2", 1),
		"file":             "file:///etc/passwd",
		"empty":            "",
	} {
		if a := d.do("POST", "/v1/calls", body(url), mine); a.Status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	d.wantProblem(d.do("POST", "/v1/calls", body(url), theirs), http.StatusBadRequest)
}

func TestFilesThatAreRefused(t *testing.T) {
	f := filesFleet(t)
	d := open(t, f)
	one := func(name string) string { return `[{"name":"` + name + `","data":""}]` }
	for name, files := range map[string]string{
		"slash": one("a/b"), "backslash": one(`a\\b`), "dots": one(".."), "hidden": one(".env"), "empty": one(""),
		"control": one(`a\u0000`), "line": one(`a\nb`), "long": one(strings.Repeat("x", 256)),
		"twice":   `[{"name":"a","data":""},{"name":"a","data":""}]`,
		"no list": `{"name":"a"}`, "no object": `["a"]`, "no source": `[{"name":"a"}]`,
		"two sources": `[{"name":"a","data":"","url":"/v1"}]`, "no base64": `[{"name":"a","data":"%%"}]`,
		"member twice": `[{"name":"a","name":"b","data":""}]`, "unknown": `[{"name":"a","data":"","path":"/etc"}]`,
		"number": `[{"name":1,"data":""}]`, "type": `[{"name":"a","mimeType":"picture","data":""}]`,
		"header": `[{"name":"a","mimeType":"image/png\r\nX: y","data":""}]`,
		"many":   "[" + strings.TrimSuffix(strings.Repeat(`{"name":"a","data":""},`, 17), ",") + "]",
	} {
		if a := d.do("POST", "/v1/calls", `{"tool":"see","arguments":{},"files":`+files+`}`); a.Status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	// What the tool does not take is an answer, and leaves no blob.
	got := d.call(200, "/v1/calls", `{"tool":"look","arguments":{},"files":[{"name":"a.txt","data":"`+encoded("text")+`"}]}`)
	if got.Result.Error == nil || got.Result.Error.Kind != call.KindInvalidArguments || !strings.Contains(got.Result.Content[0].Text, "a.txt is text/plain") {
		t.Errorf("%+v", got.Result)
	}
	if _, err := f.Blobs.Stat(t.Context(), blob.ID{Tenant: call.DefaultTenant, Key: call.Key(got.ID), N: 1}); err == nil {
		t.Error("the refused call left a blob")
	}
}
