package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/toolfleet/toolfleet/sandbox/image"
)

// entry is a file of an archive, or something worse.
type entry struct {
	name, content, link string
	kind                byte
}

func write(t *testing.T, entries ...entry) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "archive.tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	out := tar.NewWriter(f)
	for _, e := range entries {
		kind := e.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		if err := out.WriteHeader(&tar.Header{Typeflag: kind, Name: e.name, Linkname: e.link, Size: int64(len(e.content)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(out, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(out.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

// read reads what Open gives, by name.
func read(path, tag string) (map[string]string, error) {
	in, err := image.Open(path, tag)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	files := map[string]string{}
	for tr := tar.NewReader(in); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			// The importer reads to the very end, where a check may still fail.
			_, err = io.Copy(io.Discard, in)
			return files, err
		}
		if err != nil {
			return files, err
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			return files, err
		}
		files[h.Name] = string(content)
	}
}

func small(t *testing.T) v1.Image {
	t.Helper()
	img, err := image.Recipe{Add: []string{"/etc/hostname:/content"}}.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// archiveOf is what WriteArchive writes, as entries to be tampered with.
func archiveOf(t *testing.T, ref string) []entry {
	t.Helper()
	var b bytes.Buffer
	if err := image.WriteArchive(&b, ref, small(t)); err != nil {
		t.Fatal(err)
	}
	var entries []entry
	for tr := tar.NewReader(&b); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry{name: h.Name, content: string(content)})
	}
}

// TestOpen: every form that others write, each with the name it gets.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	img := small(t)
	tag, err := name.NewTag("local/open:1")
	if err != nil {
		t.Fatal(err)
	}
	saved, zipped := filepath.Join(dir, "saved.tar"), filepath.Join(dir, "saved.tar.gz")
	if err := tarball.WriteToFile(saved, tag, img); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	var z bytes.Buffer
	out := gzip.NewWriter(&z)
	if _, err := out.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(out.Close(), os.WriteFile(zipped, z.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	laid, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err == nil {
		err = laid.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	parts, err := layout.Write(filepath.Join(dir, "index"), empty.Index)
	if err == nil {
		err = parts.AppendIndex(mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img}))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, tag, in, want string }{
		{write(t, archiveOf(t, "local/open:1")...), "", "index.json", "local/open:1"},
		{write(t, archiveOf(t, "local/open:1")...), "local/renamed:2", "index.json", "local/renamed:2"},
		{string(laid), "local/laid:1", "index.json", "local/laid:1"},
		{string(parts), "local/parts:1", "index.json", "local/parts:1"},
		{saved, "", "manifest.json", "local/open:1"},
		{saved, "local/renamed:2", "manifest.json", "local/renamed:2"},
		{zipped, "", "manifest.json", "local/open:1"},
	} {
		files, err := read(c.path, c.tag)
		if err != nil || !strings.Contains(files[c.in], `"`+c.want+`"`) {
			t.Errorf("%s as %q: %q, %v", filepath.Base(c.path), c.tag, files[c.in], err)
		}
	}
	if _, err := read(string(laid), ""); err == nil || !strings.Contains(err.Error(), "--tag") {
		t.Errorf("a layout without a name: %v", err)
	}
	// Who stops reading leaves nothing behind.
	in, err := image.Open(saved, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
}

// TestIndex: an archive of ours tells what it holds without being read; one that
// has no such list, or no names in it, is an error.
func TestIndex(t *testing.T) {
	digest, err := small(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	got, err := image.Index(write(t, archiveOf(t, "local/open:1")...))
	if want := (map[string]string{"local/open:1": digest.String()}); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, file := range []string{
		write(t, entry{name: "manifest.json", content: "[]"}),
		write(t, entry{name: "index.json", content: `{"manifests":[{"digest":"sha256:1"}]}`}),
		write(t, entry{name: "index.json", content: "junk"}),
		filepath.Join(t.TempDir(), "none.tar"),
	} {
		if got, err := image.Index(file); err == nil {
			t.Errorf("%s: %v", file, got)
		}
	}
}

// TestOpenHostile: what nobody may import ends as an error before the end.
func TestOpenHostile(t *testing.T) {
	good := archiveOf(t, "local/open:1")
	with := func(more ...entry) string { return write(t, append(more, good...)...) }
	changed := func(change func([]entry) []entry) string {
		return write(t, change(append([]entry(nil), good...))...)
	}
	index := func(content string) string {
		return write(t, entry{name: "oci-layout", content: `{"imageLayoutVersion":"1.0.0"}`}, entry{name: "index.json", content: content})
	}
	many := make([]v1.Descriptor, 1001)
	for i := range many {
		many[i].Digest = v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}
	}
	crowd, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, Manifests: many})
	if err != nil {
		t.Fatal(err)
	}
	layers := fmt.Sprintf(`[{"Config":"c","RepoTags":["a:1"],"Layers":[%s"l"]}]`, strings.Repeat(`"l",`, 600))
	for _, c := range []struct{ name, path, want string }{
		{"nothing", write(t), "neither"},
		{"no tar", junk(t, "no archive"), "no tar"},
		{"half of a gzip", junk(t, "\x1f\x8b\x08\x00"), "EOF"},
		{"a path out", with(entry{name: "../../etc/cron.d/x", content: "x"}), "leads out"},
		{"an absolute path", with(entry{name: "/etc/cron.d/x", content: "x"}), "leads out"},
		{"a link out", with(entry{name: "x", link: "../../etc/shadow", kind: tar.TypeSymlink}), "leads out"},
		{"an absolute link", with(entry{name: "x", link: "/etc/shadow", kind: tar.TypeSymlink}), "leads out"},
		{"a hard link", with(entry{name: "x", link: "/etc/shadow", kind: tar.TypeLink}), "no plain file"},
		{"a device", with(entry{name: "x", kind: tar.TypeChar}), "no plain file"},
		{"a fifo", with(entry{name: "x", kind: tar.TypeFifo}), "no plain file"},
		{"two of one name", with(entry{name: "index.json", content: "{}"}), "twice"},
		{"two of one name, by a link", with(entry{name: "index.json", link: "oci-layout", kind: tar.TypeSymlink}), "twice"},
		{"a wrong digest", changed(func(e []entry) []entry { e[len(e)-1].content += "x"; return e }), "not what its digest says"},
		{"no layer", changed(func(e []entry) []entry { return e[:len(e)-1] }), "is missing"},
		{"no manifest", changed(func(e []entry) []entry { return append(e[:2], e[3:]...) }), "is missing"},
		{"no index", changed(func(e []entry) []entry { return append(e[:1], e[2:]...) }), "index.json"},
		{"a huge index", index(strings.Repeat(" ", 5<<20)), "bytes"},
		{"an index of junk", index("[1,"), "index.json"},
		{"an empty index", index(`{"schemaVersion":2,"manifests":[]}`), "0 images"},
		{"an index of a thousand", index(string(crowd)), "1001 images"},
		{"docker without its layer", write(t, entry{name: "manifest.json", content: `[{"Config":"c","RepoTags":["a:1"],"Layers":["l"]}]`}, entry{name: "c", content: "{}"}), "missing"},
		{"docker with a thousand layers", write(t, entry{name: "manifest.json", content: layers}), "layers"},
		{"docker without a name", write(t, entry{name: "manifest.json", content: `[{"Config":"c"}]`}, entry{name: "c", content: "{}"}), "--tag"},
		{"docker with a name that is none", write(t, entry{name: "manifest.json", content: `[{"Config":"c","RepoTags":["\u001b[31m"]}]`}, entry{name: "c", content: "{}"}), "cannot be the name"},
	} {
		if _, err := read(c.path, ""); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	linked := t.TempDir()
	if err := os.Symlink("/etc/shadow", filepath.Join(linked, "index.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := read(linked, ""); err == nil || !strings.Contains(err.Error(), "no plain file") && !strings.Contains(err.Error(), "escapes") {
		t.Errorf("a directory with a link out: %v", err)
	}
}

func junk(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
