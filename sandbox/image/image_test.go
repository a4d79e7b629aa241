package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/toolfleet/toolfleet/sandbox/image"
)

// sources makes a directory with one of everything.
func sources(t *testing.T, mode fs.FileMode, at time.Time) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"bin/run": "#!/bin/sh\n", "etc/motd": "hello\n", "workspace/note": "mine\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if name == "bin/run" {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("run", filepath.Join(dir, "bin/go")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func digest(t *testing.T, img v1.Image) string {
	t.Helper()
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// files lists what is in an image's one layer.
func files(t *testing.T, img v1.Image) map[string]tar.Header {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	raw, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	out := map[string]tar.Header{}
	for in := tar.NewReader(raw); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = *h
	}
}

func TestSameFilesSameDigest(t *testing.T) {
	first, err := image.FromDirectory(sources(t, 0o700, time.Unix(1, 0)))
	if err != nil {
		t.Fatal(err)
	}
	second, err := image.FromDirectory(sources(t, 0o755, time.Unix(2, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := digest(t, first), digest(t, second); a != b {
		t.Errorf("%s and %s", a, b)
	}
	other, err := image.FromDirectory(sources(t, 0o600, time.Unix(1, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if digest(t, first) == digest(t, other) {
		t.Error("a file that may not be executed gives the same digest")
	}
}

func TestFiles(t *testing.T) {
	img, err := image.Recipe{
		Directory: sources(t, 0o700, time.Now()),
		Add:       []string{sources(t, 0o700, time.Now()) + ":/opt/x"},
		Link:      []string{"/bin/ls=run", "up=../../etc"},
	}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type file struct {
		Mode, UID int64
		Link      string
	}
	got := map[string]file{}
	for name, h := range files(t, img) {
		got[name] = file{h.Mode, int64(h.Uid), h.Linkname}
		if !h.ModTime.Equal(time.Unix(0, 0)) || h.Uid != h.Gid || h.Uname != "" {
			t.Errorf("%s: %v, %d:%d %q", name, h.ModTime, h.Uid, h.Gid, h.Uname)
		}
	}
	want := map[string]file{
		"bin/": {0o755, 0, ""}, "bin/run": {0o755, 0, ""}, "bin/go": {0o777, 0, "run"}, "bin/ls": {0o777, 0, "run"},
		"etc/": {0o755, 0, ""}, "etc/motd": {0o644, 0, ""}, "etc/passwd": {0o644, 0, ""}, "etc/group": {0o644, 0, ""},
		"home/": {0o755, 0, ""}, "home/tool/": {0o755, 65532, ""}, "tmp/": {0o1777, 0, ""},
		"workspace/": {0o755, 65532, ""}, "workspace/note": {0o644, 0, ""}, "up": {0o777, 0, "../../etc"},
		"opt/": {0o755, 0, ""}, "opt/x/": {0o755, 0, ""}, "opt/x/bin/": {0o755, 0, ""}, "opt/x/bin/run": {0o755, 0, ""},
		"opt/x/bin/go": {0o777, 0, "run"}, "opt/x/etc/": {0o755, 0, ""}, "opt/x/etc/motd": {0o644, 0, ""},
		"opt/x/workspace/": {0o755, 0, ""}, "opt/x/workspace/note": {0o644, 0, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestGoPackage(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":  "module example.com/hello\n\ngo 1.26\n",
		"main.go": "package main\n\nfunc main() { println(\"hello\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	img, err := image.FromGoPackage(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if h, ok := files(t, img)["tool"]; !ok || h.Mode != 0o755 || h.Size == 0 {
		t.Errorf("/tool is %+v", h)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{image.ToolPath}, config.Config.Entrypoint); diff != "" || config.Config.User != "65532:65532" {
		t.Errorf("config %+v", config.Config)
	}
	again, err := image.FromGoPackage(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if digest(t, img) != digest(t, again) {
		t.Error("two builds differ")
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { x }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := image.FromGoPackage(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "undefined: x") {
		t.Errorf("a broken package: %v", err)
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		name, says string
		recipe     image.Recipe
	}{
		{"no colon", "two paths", image.Recipe{Add: []string{"/bin/sh"}}},
		{"no source", "no such file", image.Recipe{Add: []string{"/no/such/file:/x"}}},
		{"the root", "not a path of a file", image.Recipe{Add: []string{"/etc/passwd:/"}}},
		{"a device", "neither a file", image.Recipe{Add: []string{"/dev/null:/x"}}},
		{"no target", "two paths", image.Recipe{Link: []string{"x="}}},
		{"no directory", "no such file", image.Recipe{Directory: "/no/such/dir"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.recipe.Build(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

// TestPathsStayInside: no destination leaves the image's root.
func TestPathsStayInside(t *testing.T) {
	img, err := image.Recipe{Add: []string{"/etc/passwd:../../../x"}, Link: []string{"a/../../y=z"}}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := files(t, img)
	for _, name := range []string{"x", "y"} {
		if _, ok := got[name]; !ok {
			t.Errorf("no %s", name)
		}
	}
}

func TestArchive(t *testing.T) {
	img, err := image.FromDirectory(sources(t, 0o700, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := image.WriteArchive(w, "local/x:1", img); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of one image differ")
	}
	var names []string
	for in := tar.NewReader(&first); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Name == "index.json" {
			raw, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{`"io.containerd.image.name":"local/x:1"`, `"org.opencontainers.image.ref.name":"1"`, digest(t, img)} {
				if !strings.Contains(string(raw), want) {
					t.Errorf("no %s in %s", want, raw)
				}
			}
		}
	}
	if len(names) != 5 || names[0] != "oci-layout" || names[1] != "index.json" {
		t.Errorf("archive of %q", names)
	}
	for _, bad := range []string{"UPPER CASE", "local/x", "host:5000/x"} {
		if err := image.WriteArchive(io.Discard, bad, img); err == nil {
			t.Errorf("%q is taken for a name with a tag", bad)
		}
	}
}

// A root of a whole system, as debootstrap and its like leave it, is taken: what a
// sandbox mounts over is left out, and what only means something to root is lost.
func TestRootOfASystem(t *testing.T) {
	root := sources(t, fs.ModeSetuid|0o755, time.Now())
	for _, dir := range []string{"dev", "proc/1", "opt/dev"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "dev/initctl"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(root, "bin/run"), filepath.Join(root, "bin/again")); err != nil {
		t.Fatal(err)
	}
	for name, recipe := range map[string]image.Recipe{
		"directory": {Directory: root},
		"added":     {Add: []string{root + ":/"}},
	} {
		t.Run(name, func(t *testing.T) {
			img, err := recipe.Build(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := files(t, img)
			for _, gone := range []string{"dev/", "dev/initctl", "proc/", "proc/1/"} {
				if _, ok := got[gone]; ok {
					t.Errorf("%s is in the image", gone)
				}
			}
			if h := got["bin/run"]; h.Mode != 0o755 || h.Typeflag != tar.TypeReg {
				t.Errorf("a set-user-id program has the mode %o and the type %c", h.Mode, h.Typeflag)
			}
			if h := got["bin/again"]; h.Typeflag != tar.TypeReg || h.Size != got["bin/run"].Size {
				t.Errorf("a second link is of type %c and %d bytes", h.Typeflag, h.Size)
			}
			if h := got["opt/dev/"]; h.Mode != 0o755 {
				t.Errorf("a directory that only its owner could read has the mode %o", h.Mode)
			}
		})
	}
	if err := syscall.Mkfifo(filepath.Join(root, "opt/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := image.FromDirectory(root); err == nil || !strings.Contains(err.Error(), "opt/pipe is neither a file") {
		t.Errorf("a pipe elsewhere: %v", err)
	}
}
