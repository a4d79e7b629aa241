package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The pages for those who write tools are run as they stand. In a script,
//
//	checkout                     makes its directory look like a checkout,
//	page PAGE LANGUAGE N FILE    writes a page's Nth block of a language to a file,
//	shown PAGE WORDS             runs the one command of a page that has the words,
//	fleet                        starts a fleet that has no tools and no images.
var pageCommands = map[string]func(*testscript.TestScript, bool, []string){
	"checkout": func(ts *testscript.TestScript, _ bool, args []string) {
		wantArgs(ts, args, 0)
		ts.Check(checkout(ts))
	},
	"page": func(ts *testscript.TestScript, _ bool, args []string) {
		wantArgs(ts, args, 4)
		var n int
		_, err := fmt.Sscan(args[2], &n)
		ts.Check(err)
		blocks := blocksOf(ts, args[0], args[1])
		if n < 1 || n > len(blocks) {
			ts.Fatalf("%s has %d blocks of %s", args[0], len(blocks), args[1])
		}
		file := ts.MkAbs(args[3])
		ts.Check(os.MkdirAll(filepath.Dir(file), 0o755))
		ts.Check(os.WriteFile(file, []byte(blocks[n-1]), 0o644)) //nolint:gosec // the tool's user reads it
	},
	"shown": func(ts *testscript.TestScript, _ bool, args []string) {
		wantArgs(ts, args, 2)
		var found []string
		for _, block := range blocksOf(ts, args[0], "console") {
			for line := range strings.Lines(block) {
				command, is := strings.CutPrefix(strings.Replace(line, "# ", "$ ", 1), "$ ")
				if is && strings.Contains(command, args[1]) {
					found = append(found, command)
				}
			}
		}
		if len(found) != 1 {
			ts.Fatalf("%s shows %d commands with %q", args[0], len(found), args[1])
		}
		ts.Check(ts.Exec("bash", "-c", found[0]))
	},
	"fleet": func(ts *testscript.TestScript, _ bool, args []string) {
		wantArgs(ts, args, 0)
		t := scriptTB{ts: ts}
		state, err := os.MkdirTemp("", "toolfleet-page-")
		ts.Check(err)
		ts.Defer(func() { _ = os.RemoveAll(state) })
		f := startFleet(t, state, "--tools=", "--images=")
		ts.Defer(f.stop)
		ts.Setenv("TOOLFLEET_URL", f.http)
		ts.Setenv("TOOLFLEET_STATE", filepath.Join(state, "state"))
	},
}

func wantArgs(ts *testscript.TestScript, args []string, n int) {
	if len(args) != n {
		ts.Fatalf("%d arguments, and %d are wanted", len(args), n)
	}
}

// scriptTB lets the helpers of tests serve a script.
type scriptTB struct {
	testing.TB
	ts *testscript.TestScript
}

func (t scriptTB) Helper()                        {}
func (t scriptTB) Context() context.Context       { return context.Background() }
func (t scriptTB) Cleanup(f func())               { t.ts.Defer(f) }
func (t scriptTB) Fatal(args ...any)              { t.ts.Fatalf("%s", fmt.Sprint(args...)) }
func (t scriptTB) Fatalf(format string, a ...any) { t.ts.Fatalf(format, a...) }
func (t scriptTB) Errorf(format string, a ...any) { t.ts.Fatalf(format, a...) }
func (t scriptTB) Error(args ...any)              { t.ts.Fatalf("%s", fmt.Sprint(args...)) }
func (t scriptTB) Log(args ...any)                { t.ts.Logf("%s", fmt.Sprint(args...)) }
func (t scriptTB) Logf(format string, a ...any)   { t.ts.Logf(format, a...) }

// checkout makes the script's directory a checkout: what is in the repository as
// links, but for examples and bin, and this test's program as bin/toolfleet.
func checkout(ts *testscript.TestScript) error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != "examples" && name != "bin" && name[0] != '.' {
			if err := os.Symlink(filepath.Join(root, name), ts.MkAbs(name)); err != nil {
				return err
			}
		}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Mkdir(ts.MkAbs("bin"), 0o755); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", asProgram, program)
	return os.WriteFile(ts.MkAbs("bin/toolfleet"), []byte(script), 0o755) //nolint:gosec // it is a program
}

// goEnvironment lets a script run go as this test does.
func goEnvironment(env *testscript.Env) error {
	out, err := exec.Command("go", "env", "-json", "GOCACHE", "GOMODCACHE", "GOPATH").Output() //nolint:noctx // it is soon over
	if err != nil {
		return err
	}
	var variables map[string]string
	if err := json.Unmarshal(out, &variables); err != nil {
		return err
	}
	for name, value := range variables {
		env.Setenv(name, value)
	}
	return nil
}

// blocksOf are a page's blocks of one language.
func blocksOf(t interface{ Fatalf(string, ...any) }, page, language string) []string {
	raw, err := os.ReadFile(filepath.Join("..", "..", page))
	if err != nil {
		t.Fatalf("%v", err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)```").FindAllSubmatch(raw, -1) {
		blocks = append(blocks, string(m[1]))
	}
	return blocks
}
