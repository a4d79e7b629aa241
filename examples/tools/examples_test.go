// Package tools_test holds the example tools to their declarations: each that is
// in Go is built as it would be for an image, described, and called by hand.
package tools_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/tool"
)

// build makes the static binary that becomes a tool's image.
func build(t *testing.T, name string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// call runs a tool by hand and returns what it printed and its exit code.
func call(t *testing.T, binary, arguments string) (stdout string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Stdin = strings.NewReader(arguments)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// The declarations load, and say of each tool what it says of itself.
func TestDeclarations(t *testing.T) {
	specs, err := catalog.LoadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
		if _, err := os.Stat(filepath.Join(s.Name, "main.go")); err != nil {
			continue // it is not in Go, and its file is all that tells of it
		}
		t.Run(s.Name, func(t *testing.T) {
			binary := build(t, s.Name)
			if info, err := os.Stat(binary); err != nil || info.Size() > 8<<20 {
				t.Errorf("the binary is %d bytes large, and 8 MiB are allowed (%v)", info.Size(), err)
			}
			out, err := exec.CommandContext(t.Context(), binary, "--describe").Output()
			if err != nil {
				t.Fatal(err)
			}
			described, err := catalog.Parse(out)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if diff := cmp.Diff(normal(t, described.Info()), normal(t, s.Info())); diff != "" {
				t.Errorf("tool.yaml differs from --describe (-described +declared):\n%s", diff)
			}
			if diff := cmp.Diff([]any{described.Image, described.Command}, []any{s.Image, s.Command}); diff != "" {
				t.Errorf("image and command (-described +declared):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff([]string{
		"chart", "countdown", "flaky", "everything-get-tiny-image", "everything-trigger-long-running-operation",
		"filesystem-list_directory", "filesystem-read_text_file", "memory-create_entities",
		"pdf", "python", "shell", "word-count",
	}, names); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
}

// normal makes values whose JSON differs in form only equal.
func normal(t *testing.T, info tool.Info) any {
	t.Helper()
	raw, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCalls(t *testing.T) {
	for _, tt := range []struct {
		tool, arguments, want string
		code                  int
	}{
		{"word-count", `{"text":"to be\nor not to be"}`, `{"words":6,"lines":2,"characters":18}` + "\n", 0},
		{"word-count", `{"text":""}`, `{"words":0,"lines":0,"characters":0}` + "\n", 0},
		{"word-count", `{"txet":""}`, "The arguments do not fit:\n- lacks \"text\"\n- /txet: is unknown\n", 1},
		{"countdown", `{"from":2}`, "Counted down from 2.\n", 0},
		{"countdown", `{"from":0}`, "The arguments do not fit:\n- /from: minimum: 0/1 is less than 1.000000\n", 1},
		{"chart", `{"values":[0,0]}`, "all values are zero: there is nothing to draw\n", 1},
		{"flaky", `{"mode":"ok","sleep":1}`, "ok\n", 0},
		{"flaky", `{"mode":"error"}`, "This far it went well.\nthe error that was asked for\n", 1},
		{"flaky", `{"mode":"panic"}`, "panic: the panic that was asked for\n", 1},
		{"flaky", `{"mode":"exit3"}`, "This far it went well.\n", 3},
		{"flaky", `{"mode":"signal"}`, "", -1},
		{"flaky", `{"mode":"not-utf8"}`, "\xff\xfe\x00\x80\xc3\x28\xa0\xa1", 0},
		{"shell", `{"script":"echo \"$0\" '; $(rm -rf /nowhere)'; exit 4"}`, "sh ; $(rm -rf /nowhere)\n", 4},
	} {
		t.Run(tt.tool+" "+tt.arguments, func(t *testing.T) {
			got, code := call(t, build(t, tt.tool), tt.arguments)
			if diff := cmp.Diff(tt.want, got); diff != "" || code != tt.code {
				t.Errorf("exit code %d, want %d; stdout (-want +got):\n%s", code, tt.code, diff)
			}
		})
	}
}

func TestChartIsAPNG(t *testing.T) {
	out, _ := call(t, build(t, "chart"), `{"values":[3,1,2]}`)
	image, err := png.Decode(bytes.NewReader([]byte(out)))
	if err != nil {
		t.Fatal(err)
	}
	if got := image.Bounds().Dx(); got != 64 {
		t.Errorf("three bars are %d pixels wide", got)
	}
}

// A tool carries what every tool needs and no more: not the bus, not the
// runtime, not an HTTP stack.
func TestToolsAreLean(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../tool").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(out)) {
		for _, heavy := range []string{"net/http", "nats-io", "containerd", "prometheus", "opentelemetry", "yaml"} {
			if strings.Contains(dep, heavy) {
				t.Errorf("package tool depends on %s", dep)
			}
		}
	}
}
