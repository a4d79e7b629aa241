package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolfleet/toolfleet/agui"
	"github.com/toolfleet/toolfleet/call"
)

// fetched is an answer, read whole.
type fetched struct {
	status int
	header http.Header
	body   []byte
}

func (f *fleet) fetch(method, url, body string, header ...string) fetched {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return fetched{res.StatusCode, res.Header, data}
}

// filed is a call of the tool shell that was answered.
type filed struct {
	ID     string
	Result struct {
		Content   []agui.Part
		IsError   bool
		Execution *call.Execution
	}
}

func (f *fleet) fileCall(token, script string, files ...map[string]string) filed {
	f.t.Helper()
	body, err := json.Marshal(map[string]any{"tool": "shell", "arguments": map[string]string{"script": script}, "files": files})
	if err != nil {
		f.t.Fatal(err)
	}
	got := f.fetch(http.MethodPost, f.http+"/v1/calls", string(body), "Authorization: Bearer "+token, "Content-Type: application/json")
	var out filed
	if got.status != http.StatusOK || json.Unmarshal(got.body, &out) != nil {
		f.t.Fatalf("%d %s", got.status, got.body)
	}
	return out
}

// TestFilesThroughTheFleet: a file goes into a call, a small and a large one come
// out, and the large one is fetched as browsers do it, by those who may; then it
// is a file of the next call.
func TestFilesThroughTheFleet(t *testing.T) {
	state := t.TempDir()
	tokens := filepath.Join(state, "tokens")
	if err := os.WriteFile(tokens, []byte("acme acme-token-0123456789abcdef\nother other-token-0123456789abcd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := startFleet(t, state, "--tokens", tokens)
	const acme, other = "acme-token-0123456789abcdef", "other-token-0123456789abcd"
	const large = 20 << 20

	first := f.fileCall(acme, `cd /workspace; ls -ln in | tail -1 | cut -d' ' -f1,3-; cat in/note.txt; cp in/note.txt out/small.txt; head -c 20971520 /dev/zero > out/large.bin; ln -s /etc/passwd out/link`,
		map[string]string{"name": "note.txt", "data": base64.StdEncoding.EncodeToString([]byte("a note\n"))})
	r := first.Result
	if r.IsError || len(r.Content) != 3 || !strings.Contains(r.Content[0].Text, " 65532") || !strings.HasSuffix(r.Content[0].Text, "a note\n") {
		t.Fatalf("%+v", r)
	}
	if x := r.Execution.Files; x == nil || x.Count != 2 || len(x.LeftOut) != 1 || x.LeftOut[0].Name != "link" {
		t.Errorf("the execution says %+v", x)
	}
	big, small := r.Content[1].Source, r.Content[2].Source
	if small.Type != agui.SourceData || small.Value != base64.StdEncoding.EncodeToString([]byte("a note\n")) || big.Type != agui.SourceURL {
		t.Fatalf("large %+v, small %+v", big, small)
	}

	got := f.fetch(http.MethodGet, big.Value, "")
	sum := sha256.Sum256(make([]byte, large))
	etag := fmt.Sprintf(`"sha256:%x"`, sum)
	if got.status != http.StatusOK || !bytes.Equal(got.body, make([]byte, large)) {
		t.Fatalf("%d and %d bytes", got.status, len(got.body))
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Etag": etag,
		"Content-Disposition": "attachment; filename=large.bin", "Accept-Ranges": "bytes",
	} {
		if value := got.header.Get(name); value != want {
			t.Errorf("%s: %q, want %q", name, value, want)
		}
	}
	got = f.fetch(http.MethodGet, big.Value, "", "Range: bytes=20971510-")
	if got.status != http.StatusPartialContent || len(got.body) != 10 || got.header.Get("Content-Range") != "bytes 20971510-20971519/20971520" {
		t.Errorf("a range: %d, %d bytes, %q", got.status, len(got.body), got.header.Get("Content-Range"))
	}
	if got := f.fetch(http.MethodGet, big.Value, "", "If-None-Match: "+etag); got.status != http.StatusNotModified {
		t.Errorf("with its ETag: %d", got.status)
	}
	bare, _, _ := strings.Cut(big.Value, "?")
	if got := f.fetch(http.MethodGet, bare, "", "Authorization: Bearer "+other); got.status != http.StatusNotFound {
		t.Errorf("another tenant got %d", got.status)
	}
	if got := f.fetch(http.MethodGet, bare, ""); got.status != http.StatusUnauthorized {
		t.Errorf("nobody got %d", got.status)
	}
	if got := f.fetch(http.MethodGet, f.http+"/v1/calls/"+first.ID+"/blobs/1", "", "Authorization: Bearer "+other); got.status != http.StatusNotFound {
		t.Errorf("the file that went in: another tenant got %d", got.status)
	}

	r = f.fileCall(acme, `wc -c < /workspace/in/again; exit 3`, map[string]string{"name": "again", "url": big.Value}).Result
	if !r.IsError || !strings.HasPrefix(r.Content[0].Text, "20971520") {
		t.Errorf("%+v", r)
	}
}
