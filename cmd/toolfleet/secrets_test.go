package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// canaryTool is a shell that has two canaries: one in its environment and one
// in a file, from a file and from the environment of the fleet.
const canaryTool = `apiVersion: toolfleet/v1
kind: Tool
name: canary-%[1]s-%[2]s
description: A shell that knows secrets.
image: local/shell:1
command: [/tool]
runtime: %[1]s
isolation: %[2]s
parameters: {type: object, properties: {script: {type: string}}}
limits: {timeout: 60s, memory: 128Mi, disk: 16Mi}
secrets: [{name: one, env: ONE}, {name: two, file: two}]
`

const canarySecrets = `apiVersion: toolfleet/v1
kind: Secrets
secrets:
  - {name: one, file: one, tools: [%[1]s], tenants: [default]}
  - {name: two, env: TOOLFLEET_SECRET_TWO, tools: [%[1]s], tenants: ["*"]}
`

// canaryScripts give both canaries away in every way that a shell has.
var canaryScripts = []string{
	`echo "they are $ONE and $TWO"`,
	`echo "$ONE $TWO" >&2; exit 3`,
	`for p in $PIECES; do printf %s $p; printf %s $p >&2; sleep 0.12; done`,
	`for p in $REVERSED; do printf %s, $p; printf %s, $p >&2; sleep 0.12; done`,
	`printf %s "$ONE$TWO" | base64; for x in x xx; do printf %s "$x$ONE$TWO" | base64 >&2; done`,
	`printf %s "$ONE$TWO" | od -An -v -tx1 | tr -d ' \n'`,
	`for p in $REVERSED $ONE; do echo '{"type":"update","message":"'$p'","content":"'$p'"}' >&3; sleep 0.12; done`,
	`echo '{"type":"result","content":[{"type":"text","text":"'$ONE'"},{"type":"document","source":{"type":"data","mimeType":"text/plain","value":"'$(printf %s "$TWO" | base64)'"}}],"is_error":true}' >&3`,
	`cd /workspace/out; echo "$ONE" > "of-$TWO"; for p in $REVERSED; do printf %s, $p; done > pieces; printf %s "$TWO" | base64 > b; while [ $((n+=1)) -lt 8000 ]; do echo "$n $ONE"; done > big`,
	`echo "$ONE"; echo "$TWO" >&2; kill -9 $$`,
	`while :; do echo "$ONE $TWO"; done`,
}

// canaryPrologue reads the canary that is in a file, and cuts both up.
const canaryPrologue = `TWO=$(cat /run/secrets/two); [ -n "$ONE" ] && [ -n "$TWO" ] || exit 9
PIECES= REVERSED=
for s in "$ONE" "$TWO"; do for at in 1-13 14-26 27-39; do p=$(printf %s "$s" | cut -c$at); PIECES="$PIECES $p" REVERSED="$p $REVERSED"; done; done
echo MARKER-of-this-test
`

// TestPain92CanaryInAFleet has a real fleet run tools that give their secrets
// away, and looks for them everywhere: in what its doors say, its log and its
// metrics, all that NATS and containerd keep on disk, what any process of the
// host was started with, and the /proc of another tool's sandbox.
func TestPain92CanaryInAFleet(t *testing.T) {
	state := t.TempDir()
	one, two := canaryStarts[:11]+rand.Text()+"-9", canaryStarts[11:]+rand.Text()+"-9"
	t.Setenv("TOOLFLEET_SECRET_TWO", two)
	var names []string
	for _, runtime := range []string{"runc", "runsc"} {
		for _, isolation := range []string{"container", "cell"} {
			names = append(names, "canary-"+runtime+"-"+isolation)
			writeAll(t, filepath.Join(state, "tools", names[len(names)-1]+".tool.yaml"), fmt.Sprintf(canaryTool, runtime, isolation))
		}
	}
	shell, err := os.ReadFile(filepath.Join(repo(t), "examples/tools/shell/tool.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, filepath.Join(state, "tools", "shell.tool.yaml"), string(shell))
	writeAll(t, filepath.Join(state, "secrets", "secrets.yaml"), fmt.Sprintf(canarySecrets, strings.Join(names, ", ")))
	writeAll(t, filepath.Join(state, "secrets", "one"), one+"\n")
	f := startFleet(t, state, "--secrets", filepath.Join(state, "secrets", "secrets.yaml"))
	hunt := newHunt(one, two)

	t.Run("calls", func(t *testing.T) {
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				mine := *f
				mine.t = t
				for _, script := range canaryScripts {
					mine.giveAway(t, name, script, hunt)
				}
			})
		}
	})
	f.besideOthers(t, names, hunt)

	_, metrics := f.do("GET", "/metrics", nil)
	hunt.in(t, "/metrics", metrics)
	hunt.below(t, filepath.Join(state, "state"))
	hunt.below(t, "/run/toolfleet")
	f.stop()
	hunt.below(t, filepath.Join(state, "state"))
	log, err := os.ReadFile(f.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	hunt.in(t, "the fleet's log", log)
	if hunt.files == 0 || !hunt.marked {
		t.Errorf("of %d files none has what the tools have said beside their secrets: this test looks in the wrong place", hunt.files)
	}
}

// giveAway runs one script and looks at all that the doors tell of it.
func (f *fleet) giveAway(t *testing.T, name, script string, hunt *hunt) {
	code, raw := f.do("POST", "/v1/calls", object{"tool": name, "arguments": object{"script": canaryPrologue + script}})
	a := f.read(raw)
	if x := a.Result.Execution; code != 200 || x == nil || x.RunMs == 0 {
		t.Fatalf("HTTP %d: %s", code, raw)
	}
	if e := a.Result.Error; e != nil && e.ExitCode != nil && *e.ExitCode == 9 {
		t.Fatal("it found no secret")
	}
	hunt.in(t, "a result", raw)
	for _, path := range []string{"", "?format=native", "/events", "/events?format=native"} {
		_, raw := f.do("GET", "/v1/calls/"+a.ID+path, nil)
		hunt.in(t, "the call's "+path, raw)
	}
	for _, p := range a.Result.Content {
		switch {
		case p.Source == nil:
		case p.Source.Type == "data":
			data, err := base64.StdEncoding.DecodeString(p.Source.Value)
			if err != nil {
				t.Errorf("%s: %v", script, err)
			}
			hunt.in(t, "a part", data)
		case strings.HasPrefix(p.Source.Value, f.http):
			_, data := f.do("GET", strings.TrimPrefix(p.Source.Value, f.http), nil)
			hunt.in(t, "a blob", data)
		}
	}
}

// besideOthers looks at processes while tools with secrets run.
func (f *fleet) besideOthers(t *testing.T, names []string, hunt *hunt) {
	t.Helper()
	var ids []string
	for _, name := range names {
		id := f.submit(name, object{"script": canaryPrologue + "echo up >&2; sleep 30"})
		ids = append(ids, id)
		f.events(id, func(event map[string]any) bool { return !strings.Contains(fmt.Sprint(event), "up\n") })
	}
	tools := 0
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		argv, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(p, "environ"))
		hunt.in(t, p+"/cmdline", argv)
		switch {
		case bytes.Contains(environ, []byte("TOOLFLEET_TOOL=canary")):
			tools++ // its own
		case bytes.Contains(environ, []byte("TOOLFLEET_SECRET_TWO=")):
			if p != fmt.Sprintf("/proc/%d", f.cmd.Process.Pid) && p != fmt.Sprintf("/proc/%d", os.Getpid()) {
				t.Errorf("%s has inherited a secret: %q", p, argv)
			}
		default:
			hunt.in(t, p+"/environ", environ)
		}
	}
	if tools == 0 {
		t.Error("no tool was seen to run")
	}
	other := f.call("shell", object{"script": `cat /proc/*/environ /proc/*/cmdline /proc/*/task/*/environ /run/secrets/* 2>/dev/null | tr '\0' '\n'; ls -la /run/secrets; env; mount; echo looked`})
	if !strings.Contains(other.text(), "looked") {
		t.Fatalf("another tool said %+v", other)
	}
	hunt.in(t, "another sandbox", []byte(other.text()))
	for _, id := range ids {
		f.do("DELETE", "/v1/calls/"+id, nil)
	}
	for _, id := range ids {
		ended := false
		f.events(id, func(event map[string]any) bool {
			ended = ended || event["type"] == "TOOL_CALL_RESULT"
			return true
		})
		if !ended {
			t.Errorf("%s has no result", id)
		}
	}
}

// canaryStarts are how canaries begin.
const canaryStarts = "CANARY-one-CANARY-two-"

// hunt looks for canaries.
type hunt struct {
	traces [][]byte
	files  int
	marked bool // the marker was found in a file
}

// newHunt takes every piece of twelve bytes for a trace of a canary, plain, in
// hexadecimal digits and in base64.
func newHunt(canaries ...string) *hunt {
	h := new(hunt)
	for _, c := range canaries {
		forms := []string{c, hex.EncodeToString([]byte(c))}
		for before := range 3 {
			form := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + c))
			forms = append(forms, form[4:len(form)-4])
		}
		for i, f := range forms {
			for at := 0; at+12 <= len(f); at++ {
				// What all canaries begin with is in this test's scripts, too.
				if piece := f[at : at+12]; i > 0 || !strings.Contains(canaryStarts, piece[:8]) {
					h.traces = append(h.traces, []byte(piece))
				}
			}
		}
	}
	return h
}

func (h *hunt) in(t *testing.T, what string, text []byte) {
	t.Helper()
	for _, trace := range h.traces {
		if i := bytes.Index(text, trace); i >= 0 {
			t.Errorf("%s has %q: …%q…", what, trace, text[max(0, i-200):min(len(text), i+200)])
			return
		}
	}
}

// below looks into every file of a directory's own file system.
func (h *hunt) below(t *testing.T, dir string) {
	t.Helper()
	var root unix.Stat_t
	if err := unix.Stat(dir, &root); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err != nil || unix.Lstat(path, &st) != nil {
			return nil // gone meanwhile
		}
		if e.IsDir() && (st.Dev != root.Dev || e.Name() == "blobs" || e.Name() == "snapshots") {
			return fs.SkipDir // mounted here, or an image's files
		}
		if !e.Type().IsRegular() {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil {
			h.files++
			h.marked = h.marked || bytes.Contains(text, []byte("MARKER-of-this-test"))
			h.in(t, path, text)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func writeAll(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
