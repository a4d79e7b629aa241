package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The user that tools run as, and the places where it may write. A sandbox
// mounts something there; other runtimes find directories of the right owner.
const (
	ToolPath = "/tool"

	toolID = 65532
)

// entry is one path of a tree: a directory, a file or a link.
type entry struct {
	mode fs.FileMode // permission bits, and ModeDir or ModeSymlink
	// One of these for a file: its place on this machine, or its content.
	source  string
	content string
	target  string // of a link
	owner   int
}

// Tree is the files of an image to be. It is not safe for concurrent use.
type Tree struct {
	entries map[string]entry // by path without the leading slash
}

// New returns a tree that holds what every tool's image has: /etc/passwd and
// /etc/group with a user tool (65532), /tmp, /workspace and /home/tool.
func New() *Tree {
	t := &Tree{entries: map[string]entry{}}
	t.put("etc/passwd", entry{mode: 0o644, content: "root:x:0:0:root:/:/sbin/nologin\ntool:x:65532:65532:tool:/home/tool:/sbin/nologin\n"})
	t.put("etc/group", entry{mode: 0o644, content: "root:x:0:\ntool:x:65532:\n"})
	t.put("tmp", entry{mode: fs.ModeDir | fs.ModeSticky | 0o777})
	t.put("workspace", entry{mode: fs.ModeDir | 0o755, owner: toolID})
	t.put("home/tool", entry{mode: fs.ModeDir | 0o755, owner: toolID})
	return t
}

// put places e at name, with the directories above it.
func (t *Tree) put(name string, e entry) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, ok := t.entries[dir]; !ok {
			t.entries[dir] = entry{mode: fs.ModeDir | 0o755}
		}
	}
	t.entries[name] = e
}

// clean checks a path inside the image and takes its leading slash off.
func clean(name string) (string, error) {
	cleaned := path.Clean("/" + name)[1:]
	if cleaned == "" || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("image: %q is not a path of a file", name)
	}
	return cleaned, nil
}

// Add places the file or directory src of this machine at dst in the image; a
// directory may come to the root itself. A symbolic link at src itself is
// followed; links below a directory are kept.
func (t *Tree) Add(src, dst string) error {
	info, err := os.Stat(src)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if info.IsDir() && path.Clean("/"+dst) == "/" {
		return t.AddDirectory(src)
	}
	name, err := clean(dst)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return t.addDir(src, name)
	}
	return t.addFile(src, name, info)
}

// AddDirectory places what is in dir at the root of the image.
func (t *Tree) AddDirectory(dir string) error { return t.addDir(dir, ".") }

// Link makes name in the image a symbolic link to target, which is taken as it
// is.
func (t *Tree) Link(name, target string) error {
	name, err := clean(name)
	if err != nil {
		return err
	}
	if target == "" {
		return fmt.Errorf("image: link %q needs a target", name)
	}
	t.put(name, entry{mode: fs.ModeSymlink | 0o777, target: target})
	return nil
}

// mounted are the places where a sandbox has its own. What the root of a whole
// system has there (devices, a process's files) belongs to the machine that it
// was made on.
var mounted = map[string]bool{"dev": true, "proc": true, "sys": true}

func (t *Tree) addDir(dir, at string) error {
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		name := path.Join(at, filepath.ToSlash(rel))
		if name == "." {
			return nil
		}
		if mounted[name] {
			return fs.SkipDir
		}
		return t.addEntry(file, name, d)
	})
}

func (t *Tree) addEntry(file, name string, d fs.DirEntry) error {
	switch d.Type() {
	case fs.ModeDir:
		if _, ok := t.entries[name]; !ok { // keeps the owner of /workspace
			t.put(name, entry{mode: fs.ModeDir | 0o755})
		}
		return nil
	case fs.ModeSymlink:
		target, err := os.Readlink(file)
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		return t.Link(name, target)
	default:
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		return t.addFile(file, name, info)
	}
}

// addFile places one file. Of its mode only "may be executed" is kept: the
// rest differs with the umask of whoever checked it out, and set-user-id means
// nothing where no process can gain a privilege. Neither do its owner and its
// extended attributes; a second hard link is a second file.
func (t *Tree) addFile(file, name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("image: %s is neither a file nor a directory nor a link", file)
	}
	mode := fs.FileMode(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	t.put(name, entry{mode: mode, source: abs})
	return nil
}

// writeTar writes the tree as a layer.
func (t *Tree) writeTar(w io.Writer) error {
	names := make([]string, 0, len(t.entries))
	for name := range t.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	out := tar.NewWriter(w)
	for _, name := range names {
		if err := t.entries[name].writeTo(out, name); err != nil {
			return fmt.Errorf("image: write %s: %w", name, err)
		}
	}
	return out.Close()
}

func (e entry) writeTo(out *tar.Writer, name string) (err error) {
	h := &tar.Header{Name: name, Mode: int64(e.mode.Perm()), Uid: e.owner, Gid: e.owner, ModTime: epoch, Format: tar.FormatPAX}
	switch {
	case e.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if e.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		return out.WriteHeader(h)
	case e.mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.target
		return out.WriteHeader(h)
	}
	content, size, err := e.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	h.Typeflag, h.Size = tar.TypeReg, size
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return err
}

func (e entry) open() (io.ReadCloser, int64, error) {
	if e.source == "" {
		return io.NopCloser(strings.NewReader(e.content)), int64(len(e.content)), nil
	}
	f, err := os.Open(e.source)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}
