package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/sandbox/image"
)

// TestImages: a fleet has the images of its tools before their calls, also of
// tools that come while it runs, says why one cannot be had, and lets nobody
// remove what is in use.
func TestImages(t *testing.T) {
	asked := make(chan string, 64) // repositories, each time what a name means is asked
	serve := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if repo, _, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/"); found && r.Method == http.MethodHead {
			asked <- repo
		}
		if strings.HasPrefix(r.URL.Path, "/v2/locked/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		serve.ServeHTTP(w, r)
	}))
	t.Cleanup(hub.Close)
	host := strings.TrimPrefix(hub.URL, "http://")
	img, err := image.Recipe{Add: []string{"/bin/busybox:/bin/busybox"}, Link: []string{"/bin/sh=busybox"}}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, repo := range []string{"first", "later"} {
		tag, err := name.NewTag(host + "/" + repo + "/tool:1")
		if err == nil {
			err = remote.Write(tag, img)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	write := func(tool, image string) {
		t.Helper()
		spec := "name: " + tool + "\ndescription: Echoes.\nimage: " + image + "\ncommand: [/bin/sh, -c, 'cat >/dev/null; echo " + tool + "']\nlimits: {timeout: 5s}\nparameters: {type: object}\n"
		if err := os.WriteFile(filepath.Join(dir, "tools", tool+".tool.yaml"), []byte(spec), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "tools"), 0o700); err != nil {
		t.Fatal(err)
	}
	write("first", host+"/first/tool:1")
	write("locked", host+"/locked/tool:1")
	f := startFleet(t, dir)
	await := func(repo string) {
		t.Helper()
		for {
			select {
			case got := <-asked:
				if got == repo {
					return
				}
			case <-time.After(time.Minute):
				t.Fatalf("nobody asked for the image of %s:\n%s", repo, f.logTail())
			}
		}
	}
	await("first/tool")
	if got := f.call("first", map[string]any{}).text(); got != "first\n" {
		t.Errorf("first says %q", got)
	}
	refused := f.call("locked", map[string]any{})
	if refused.kind() != call.KindImageUnavailable || !strings.Contains(refused.text(), "is not allowed to be pulled") {
		t.Errorf("a locked image ends as %s: %s", refused.kind(), refused.text())
	}
	write("later", host+"/later/tool:1@"+digest(t, img))
	await("later/tool")

	images := func(want int, args ...string) string {
		t.Helper()
		out := &strings.Builder{}
		args = append([]string{"image"}, args...)
		code := run(t.Context(), append(args, "--state", filepath.Join(dir, "state")), &terminal{in: strings.NewReader(""), out: out, err: out})
		if code != want {
			t.Errorf("%v ends with %d:\n%s", args, code, out)
		}
		return out.String()
	}
	if list := images(exitOK, "list"); !strings.Contains(list, host+"/first/tool:1") || !strings.Contains(list, "pulled") || !strings.Contains(list, "imported") {
		t.Errorf("the list is\n%s", list)
	}
	if said := images(exitFailed, "remove", "local/word-count:1x"); !strings.Contains(said, "no such image") {
		t.Errorf("removing what is not there says %q", said)
	}
	archive := filepath.Join(dir, "mine.tar")
	source := filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o700); err != nil {
		t.Fatal(err)
	}
	images(exitOK, "build", source, "-t", "local/mine:1", "-o", archive)
	if got := images(exitOK, "import", archive, "--tag", "local/renamed:1"); got != "local/renamed:1\n" {
		t.Errorf("imported %q", got)
	}
	if got := images(exitOK, "remove", "local/renamed:1"); got != "local/renamed:1\n" {
		t.Errorf("removed %q", got)
	}
	images(exitFailed, "import", os.Args[0])
	if said := images(exitFailed, "remove", host+"/first/tool:1"); !strings.Contains(said, "--force") || !strings.Contains(said, "first") {
		t.Errorf("removing what a tool uses says %q", said)
	}
	if got := images(exitOK, "remove", "--force", host+"/first/tool:1"); !strings.Contains(got, "first") {
		t.Errorf("removed %q", got)
	}
	f.stop()
	images(exitNoFleet, "list")
}

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}
