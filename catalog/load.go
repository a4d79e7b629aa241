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

// LoadFile reads the tool that a file declares. The error is [Problems] with
// the file's name and lines, all that were found.
func LoadFile(name string) (Spec, error) {
	return loadFrom(name, func() (fs.File, error) { return os.Open(name) })
}

// LoadDir reads every tool below dir: the files named tool.yaml or
// *.tool.yaml, in lexical order. Directories whose name begins with a dot are
// passed over (so a mounted Kubernetes ConfigMap, which keeps its files twice,
// is read once), and a symbolic link is followed only within dir. The error is
// [Problems] over all files; two files that declare the same name are one.
func LoadDir(dir string) ([]Spec, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	defer root.Close()
	var (
		specs    []Spec
		problems Problems
		files    = map[string]string{}
		tree     = root.FS()
	)
	add := func(file string, s Spec, err error) {
		var faults Problems
		switch {
		case errors.As(err, &faults):
			problems = append(problems, faults...)
		case files[s.Name] != "":
			problems = append(problems, Problem{File: file, Field: "name", Message: fmt.Sprintf("%q is declared already, in %s", s.Name, files[s.Name])})
		default:
			files[s.Name] = file
			specs = append(specs, s)
		}
	}
	err = fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		file := filepath.Join(dir, path)
		switch {
		case err != nil:
			problems = append(problems, Problem{File: file, Message: err.Error()})
		case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.IsDir() && isToolFile(entry.Name()):
			s, err := loadFrom(file, func() (fs.File, error) { return openRegular(root, path) })
			add(file, s, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return specs, nil
}

func isToolFile(name string) bool {
	return name == "tool.yaml" || strings.HasSuffix(name, ".tool.yaml")
}

// openRegular opens a file below root, and refuses what could block a reader,
// such as a FIFO.
func openRegular(root *os.Root, path string) (fs.File, error) {
	info, err := root.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	return root.Open(path)
}

// loadFrom parses what open yields and puts the file's name on every problem.
func loadFrom(name string, open func() (fs.File, error)) (Spec, error) {
	s, err := func() (Spec, error) {
		f, err := open()
		if err != nil {
			return Spec{}, Problems{{Message: err.Error()}}
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
		if err != nil {
			return Spec{}, Problems{{Message: err.Error()}}
		}
		return Parse(data)
	}()
	if faults, ok := errors.AsType[Problems](err); ok {
		for i := range faults {
			faults[i].File = name
		}
	}
	return s, err
}
