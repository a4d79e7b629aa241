package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const maxLines = 700

// walk calls visit with every text file of the repository, its path from the
// root first. What is built and what git keeps is left out.
func walk(t *testing.T, visit func(name string, text []byte)) {
	t.Helper()
	built := []string{".git", ".toolchain", "bin", "dist", "node_modules"}
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(built, d.Name()):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
			return nil
		}
		name, err := filepath.Rel(root, path)
		seen++
		visit(filepath.ToSlash(name), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 50 {
		t.Fatalf("found %d files; the rules would hold for nothing", seen)
	}
}

func TestPackageComments(t *testing.T) {
	for _, p := range listed(t) {
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command "
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("%s: the package comment must begin with %q; it begins with %q", p.rel(), want, p.Doc)
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	walk(t, func(name string, text []byte) {
		if n := bytes.Count(text, []byte("\n")); strings.HasSuffix(name, ".go") && n > maxLines {
			t.Errorf("%s has %d lines, more than %d", name, n, maxLines)
		}
	})
}

// A test waits for what it waits for; a sleep is too long on a fast machine
// and too short on a slow one. A test that skips itself looks like one that
// passed.
func TestTestsNeitherSleepNorSkip(t *testing.T) {
	walk(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, "_test.go") && !isTest(filepath.Dir(name)) || !strings.HasSuffix(name, ".go") {
			return
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, _ := sel.X.(*ast.Ident)
			switch {
			case x != nil && x.Name == "time" && sel.Sel.Name == "Sleep":
				t.Errorf("%s sleeps", fset.Position(n.Pos()))
			case x != nil && slices.Contains([]string{"t", "b", "f", "tb"}, x.Name) && strings.HasPrefix(sel.Sel.Name, "Skip"):
				t.Errorf("%s skips", fset.Position(n.Pos()))
			}
			return true
		})
	})
}

// What is left to do stands in the issue tracker, where somebody sees it; and
// nobody's machine is anybody else's. The words are put together here, so that
// this file may name them.
func TestNoLeftovers(t *testing.T) {
	forbidden := []string{
		"TO" + "DO", "FIX" + "ME", "XX" + "X:", "/work" + "/main", "/work" + "/shared", "/root" + "/.",
		"panic(\"unwrit" + "ten\")",
	}
	walk(t, func(name string, text []byte) {
		for i, line := range strings.Split(string(text), "\n") {
			for _, word := range forbidden {
				if strings.Contains(line, word) {
					t.Errorf("%s:%d contains %q", name, i+1, word)
				}
			}
		}
	})
}
