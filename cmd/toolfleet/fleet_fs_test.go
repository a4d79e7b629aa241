package main

import (
	"io/fs"
	"strings"
)

// onlyYAML shows a tree's folders and tool specifications, and nothing else.
type onlyYAML struct{ fs.FS }

// ReadDir implements [fs.ReadDirFS].
func (o onlyYAML) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(o.FS, name)
	if err != nil {
		return nil, err
	}
	kept := all[:0]
	for _, e := range all {
		if e.IsDir() || strings.HasSuffix(e.Name(), "tool.yaml") {
			kept = append(kept, e)
		}
	}
	return kept, nil
}
