package containerd_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/toolfleet/toolfleet/sandbox"
	"github.com/toolfleet/toolfleet/sandbox/containerd"
	"github.com/toolfleet/toolfleet/sandbox/image"
)

// shellImage holds busybox and one file with the given content.
func shellImage(t *testing.T, content string) v1.Image {
	t.Helper()
	file := filepath.Join(t.TempDir(), "content")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	img, err := image.Recipe{Add: []string{"/bin/busybox:/bin/busybox", file + ":/content"}, Link: []string{"/bin/sh=busybox"}}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func importImage(t *testing.T, rt *containerd.Runtime, ref string, img v1.Image) {
	t.Helper()
	var archive bytes.Buffer
	if err := image.WriteArchive(&archive, ref, img); err != nil {
		t.Fatal(err)
	}
	names, err := rt.Import(t.Context(), &archive)
	if err != nil || len(names) != 1 || names[0] != ref {
		t.Fatalf("imported %q, %v", names, err)
	}
}

// TestImportHoldsOneLease: what makes an image ready in the middle of an import
// does not give the import's lease back.
func TestImportHoldsOneLease(t *testing.T) {
	var log bytes.Buffer
	rt, err := containerd.New(containerd.Config{
		Address: daemon.Address(), Owner: "one-lease", AgentPath: shell, BinDir: binDir,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	importImage(t, rt, "local/one-lease:1", shellImage(t, "one lease"))
	if log.Len() > 0 {
		t.Errorf("an import has something to say:\n%s", log.String())
	}
	forget(t, "local/one-lease:1")
}

func digestOf(t *testing.T, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// content starts a sandbox of ref and reads the image's one file.
func content(t *testing.T, rt *containerd.Runtime, id, ref string) string {
	t.Helper()
	inst, err := rt.Start(t.Context(), id, sandbox.Spec{Image: ref, Pull: "never"})
	if err != nil {
		t.Fatal(err)
	}
	defer closeInstance(t, inst)
	return ask(t, inst, "cat /content")
}

// TestNewImageUnderOldName: the next start sees it.
func TestNewImageUnderOldName(t *testing.T) {
	rt := open(t, "w1")
	const ref = "local/changing:1"
	first, second := shellImage(t, "first"), shellImage(t, "second")
	importImage(t, rt, ref, first)
	old, err := rt.Start(t.Context(), "old", sandbox.Spec{Image: ref})
	if err != nil {
		t.Fatal(err)
	}
	defer closeInstance(t, old)
	importImage(t, rt, ref, second)
	if got := content(t, rt, "new", ref); got != "second" {
		t.Errorf("new sandbox of %q", got)
	}
	if got := ask(t, old, "cat /content"); got != "first" {
		t.Errorf("old sandbox of %q", got)
	}
	if got, err := rt.Ensure(t.Context(), ref, "never"); err != nil || got != digestOf(t, second) {
		t.Errorf("digest %s, %v", got, err)
	}
	if got := content(t, rt, "pinned", ref+"@"+digestOf(t, second)); got != "second" {
		t.Errorf("pinned sandbox of %q", got)
	}
	if _, err := rt.Ensure(t.Context(), ref+"@"+digestOf(t, first), "never"); !errors.Is(err, sandbox.ErrImage) {
		t.Errorf("pinned to the old digest: %v", err)
	}
	store, err := containerd.OpenImages(daemon.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if name, err := store.Remove(t.Context(), ref+"@"+digestOf(t, first), true); !errors.Is(err, containerd.ErrNoSuchImage) {
		t.Errorf("the old digest stood for %q: %v", name, err)
	}
}

// TestDeletedImage: running sandboxes keep what they need, and the image can
// come back, whatever the collector took meanwhile.
func TestDeletedImage(t *testing.T) {
	rt := open(t, "w1")
	const ref = "local/deleted:1"
	img := shellImage(t, "here")
	importImage(t, rt, ref, img)
	inst, err := rt.Start(t.Context(), "keeps", sandbox.Spec{Image: ref})
	if err != nil {
		t.Fatal(err)
	}
	ctx, raw := rawClient(t, "toolfleet")
	remove := func() {
		t.Helper()
		if err := raw.ImageService().Delete(ctx, ref, images.SynchronousDelete()); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	if got := ask(t, inst, "cat /content"); got != "here" {
		t.Errorf("running sandbox of %q", got)
	}
	closeInstance(t, inst)
	if _, err := rt.Ensure(t.Context(), ref, "never"); !errors.Is(err, sandbox.ErrImage) {
		t.Errorf("ensure a deleted image: %v", err)
	}
	importImage(t, rt, ref, img)
	remove()
	importImage(t, rt, ref, img)
	if got := content(t, rt, "back", ref); got != "here" {
		t.Errorf("sandbox of %q", got)
	}
	remove()
}

// TestHostileImage: links where mount points belong must not lead the
// furniture out of the image, nor a mount to another place.
func TestHostileImage(t *testing.T) {
	rt := open(t, "w1")
	outside := t.TempDir()
	tree := image.New()
	for _, pair := range [][2]string{
		{"/bin/busybox", "/bin/busybox"}, {"/etc/hostname", "/content"}, {"/etc/hostname", "/tmp"}, {"/etc/hostname", "/.toolfleet/agent"},
	} {
		if err := tree.Add(pair[0], pair[1]); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"/workspace": outside, "/home/tool": "../../../../.." + outside, "/proc": "/content", "/sys": "sys", "/bin/sh": "busybox",
	} {
		if err := tree.Link(name, target); err != nil {
			t.Fatal(err)
		}
	}
	img, err := tree.Image()
	if err != nil {
		t.Fatal(err)
	}
	importImage(t, rt, "local/hostile:1", img)
	inst, err := rt.Start(t.Context(), "hostile", sandbox.Spec{Image: "local/hostile:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer closeInstance(t, inst)
	got := ask(t, inst, "cat /proc/mounts | cut -d' ' -f2 | grep -cE '^(/tmp|/workspace|/home/tool|/proc|/sys)$'")
	if got != "5" {
		t.Errorf("%s of 5 places are mounted", got)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside: %v, %v", left, err)
	}
}

func TestImportOfJunk(t *testing.T) {
	rt := open(t, "w1")
	for _, junk := range []string{"", "no archive", strings.Repeat("\x00", 1024)} {
		if names, err := rt.Import(t.Context(), strings.NewReader(junk)); err == nil {
			t.Errorf("imported %q from %q", names, junk)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rt.Ensure(ctx, testImage, ""); err == nil {
		t.Error("ensured on a context that has ended")
	}
}

func TestListImages(t *testing.T) {
	rt := open(t, "w1")
	found, err := rt.ListImages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range found {
		if img.Name == testImage && strings.HasPrefix(img.Digest, "sha256:") {
			return
		}
	}
	t.Errorf("no %s in %v", testImage, found)
}

// TestNoRegistryIsImplied asks for images that nobody imported by names that
// custom would complete with a public registry, where anybody may own them.
func TestNoRegistryIsImplied(t *testing.T) {
	rt := open(t, "implied")
	for _, ref := range []string{"local/nobody-imported-this:1", "nobody-imported-this", "a/b/c:1"} {
		_, err := rt.Ensure(t.Context(), ref, "missing")
		if fault(err) != sandbox.ImageAbsent || !strings.Contains(err.Error(), "names no registry") {
			t.Errorf("%s: %v", ref, err)
		}
	}
}
