package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// LoadDir reads every tool below dir: the files named tool.yaml or
// *.tool.yaml, in lexical order, each with the tools of [ParseAll]. Directories whose name begins with a dot are
// passed over (so a mounted Kubernetes ConfigMap, which keeps its files twice,
// is read once), and a symbolic link is followed only within dir. The error is
// [Problems] over all files; a name that is declared twice is one.
func LoadDir(dir string) ([]Spec, error) { return Load(nil, dir) }

// Load reads the tools of files and directories together, as [LoadDir] does: every
// fault of all of them is told, and a name that is declared twice is one. The path
// "-" is stdin, such as a program's --describe; where stdin is nil it is a path like
// any other.
func Load(stdin io.Reader, paths ...string) ([]Spec, error) {
	located, err := load(stdin, paths...)
	if err != nil {
		return nil, err
	}
	var specs []Spec
	for _, l := range located {
		specs = append(specs, l.spec)
	}
	return specs, nil
}

// located is a tool and the file that declares it.
type located struct {
	spec   Spec
	digest string
	file   string
}

// loader gathers tools and faults of several files.
type loader struct {
	tools    []located
	problems Problems
	files    map[string]string // by the names of their tools
}

func load(stdin io.Reader, paths ...string) ([]located, error) {
	l := loader{files: map[string]string{}}
	for _, path := range paths {
		if path == "-" && stdin != nil {
			l.add("standard input", func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil })
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			err = l.tree(path)
		case err == nil:
			l.add(path, func() (io.ReadCloser, error) { return openPlain(path) })
		}
		if err != nil {
			return nil, fmt.Errorf("catalog: %w", err)
		}
	}
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	return l.tools, nil
}

// add reads one file.
func (l *loader) add(file string, open func() (io.ReadCloser, error)) {
	specs, err := loadFrom(file, open)
	faults, _ := errors.AsType[Problems](err)
	l.problems = append(l.problems, faults...)
	for _, s := range specs {
		if at := l.files[s.Name]; at != "" {
			l.problems = append(l.problems, Problem{File: file, Field: "name", Message: fmt.Sprintf("%q is declared already, in %s", s.Name, at)})
			continue
		}
		l.files[s.Name] = file
		l.tools = append(l.tools, located{s, s.Digest(), file})
	}
}

// tree reads the tool files below a directory.
func (l *loader) tree(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return eachToolFile(root, func(path string, err error) {
		file := filepath.Join(dir, path)
		if err != nil {
			l.problems = append(l.problems, Problem{File: file, Message: err.Error()})
			return
		}
		l.add(file, func() (io.ReadCloser, error) { return openRegular(root, path) })
	})
}

// eachToolFile calls visit for every tool file below root, and with an error for
// what cannot be looked into.
func eachToolFile(root *os.Root, visit func(path string, err error)) error {
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			visit(path, err)
		case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.IsDir() && isToolFile(entry.Name()):
			visit(path, nil)
		}
		return nil
	})
}

func isToolFile(name string) bool {
	return name == "tool.yaml" || strings.HasSuffix(name, ".tool.yaml")
}

var errIrregular = errors.New("is not a regular file")

// openRegular opens a file below root, and refuses what could block a reader,
// such as a FIFO.
func openRegular(root *os.Root, path string) (io.ReadCloser, error) {
	switch info, err := root.Stat(path); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errIrregular
	}
	return root.Open(path)
}

// openPlain is openRegular for a file that somebody named.
func openPlain(path string) (io.ReadCloser, error) {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errIrregular
	}
	return os.Open(path)
}

// loadFrom parses what open yields and puts the file's name on every problem.
// The error is [Problems].
func loadFrom(name string, open func() (io.ReadCloser, error)) ([]Spec, error) {
	specs, err := func() ([]Spec, error) {
		f, err := open()
		if err != nil {
			return nil, Problems{{Message: err.Error()}}
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
		if err != nil {
			return nil, Problems{{Message: err.Error()}}
		}
		return ParseAll(data)
	}()
	if faults, ok := errors.AsType[Problems](err); ok {
		for i := range faults {
			faults[i].File = name
		}
	}
	return specs, err
}
