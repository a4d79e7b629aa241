package tool_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolfleet/toolfleet/catalog"
	"github.com/toolfleet/toolfleet/tool"
)

// described runs the test binary as a program of tools and returns the files
// that it prints.
func described(t *testing.T, arguments ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"--describe"}, arguments...)...)
	cmd.Env = append(os.Environ(), "TOOLFLEET_TEST_AS_TOOL=described")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.Split(string(out), "---\n")
}

// What --describe prints is what a person would have written, and the catalogue
// takes it as it is.
func TestDescribeIsATool(t *testing.T) {
	want := `apiVersion: toolfleet/v1
kind: Tool
name: search
description: "Searches: \"quickly\"."
useWhen: Something is lost, or may be.
image: local/search:1
command: [/tool]
parameters:
  type: object
  properties:
    text:
      type: string
      description: what to look for
    order:
      type: string
      enum: [rising, "off", "1"]
  required: [text]
  additionalProperties: false
outputSchema:
  type: ["null", array]
  items:
    type: integer
annotations:
  readOnly: true
  idempotent: true
parallel: true
`
	if diff := cmp.Diff(want, described(t, "search")[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	dir := t.TempDir()
	for i, file := range described(t) {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.tool.yaml", i)), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	specs, err := catalog.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(specs) != len(tool.Described) {
		t.Fatalf("%d tools", len(specs))
	}
	for i, s := range specs {
		want := tool.Described[i].Info()
		if want.Kind == "" {
			want.Kind = tool.KindFunction
		}
		got := s.Info()
		if want.InputSchema == nil {
			got.InputSchema = nil // any object
		}
		if diff := cmp.Diff(plainly(t, want), plainly(t, got)); diff != "" {
			t.Errorf("(-described +loaded):\n%s", diff)
		}
	}
}

// All that --describe prints is one file that a fleet loads.
func TestDescribeIsOneFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool.yaml"), []byte(strings.Join(described(t), "---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	specs, err := catalog.LoadDir(dir)
	if err != nil || len(specs) != len(tool.Described) {
		t.Errorf("%d tools, %v", len(specs), err)
	}
}

// plainly makes values whose JSON differs in form only equal.
func plainly(t interface{ Fatal(...any) }, v any) any {
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var plain any
	if err := dec.Decode(&plain); err != nil {
		t.Fatal(err)
	}
	return plain
}

// Whatever JSON a tool describes itself by, the catalogue reads the same.
func TestDescribedJSONIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := rapid.MapOf(text(), value(3)).Draw(t, "config")
		raw, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		description := "d" + text().Draw(t, "description")
		file, err := tool.Declare(tool.Info{Name: "t", Description: description, Kind: tool.KindServer, ServerType: "x", ServerConfig: raw})
		if err != nil {
			t.Fatal(err)
		}
		s, err := catalog.Parse(file)
		if err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		if s.Description != description {
			t.Errorf("description %q, want %q", s.Description, description)
		}
		if diff := cmp.Diff(plainly(t, config), plainly(t, s.ServerConfig)); diff != "" {
			t.Errorf("(-want +got):\n%s\n%s", diff, file)
		}
	})
}

// text is any text, and often one that YAML has its own mind about.
func text() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`[a-zA-Z~ :,'"#&*!|>%@{}\[\]\\?-]{0,6}`),
		rapid.SampledFrom([]string{"null", "No", "1", "0x1f", "1e3", ".inf", "2001-01-01", "=", "<<", "a: b", "a #b", "\ufeff", "\x7f", "\u2028", "\U0001f600", "a\nb"}),
	)
}

func value(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), text().AsAny(), rapid.Int64().AsAny(), rapid.Float64Range(-1e300, 1e300).AsAny(),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	return rapid.OneOf(append(scalars, rapid.SliceOfN(value(depth-1), 0, 3).AsAny(), rapid.MapOfN(text(), value(depth-1), 0, 3).AsAny())...)
}
